"""From a cached venv to a ready worker, beside an interpreter that only imports what a worker cannot do without."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmax.bundle import dump_bundle
from runner import isolate
from runner.provision import Cache, provision
from runner.provision.bytecode import compile_modules
from scripts.benchmarks import subject
from scripts.benchmarks.table import Row, at_most, median_ms

ROUNDS = 15
HELP = """
from runner.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
"""
UNAVOIDABLE = "import asyncio, msgspec, cloudpickle, packaging.requirements"
REFERENCE = ("msgspec", "cloudpickle", "packaging")
"""Packages among these."""


async def measure() -> list[Row]:
    """Measure and return rows."""
    bundle = dump_bundle(subject.NoOp, local_modules=[subject])
    cache = Cache()
    venv = await provision(bundle.metadata, cache=cache)
    # as compiled as what a worker loads is after its first start
    packages = venv.path / "lib" / f"python{venv.python_version}" / "site-packages"
    modules = [path.relative_to(venv.path).as_posix() for name in REFERENCE for path in packages.glob(f"{name}/*.py")]
    await compile_modules(venv, modules)
    async with isolate(bundle, cache=cache, sandbox="off"):
        pass
    bare: list[float] = []
    ready: list[float] = []
    closing: list[float] = []
    found: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run([venv.python, "-s", "-P", "-X", "utf8", "-c", UNAVOIDABLE], check=True)  # noqa: ASYNC221
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        await provision(bundle.metadata, cache=cache)
        found.append(time.perf_counter() - began)
        env = isolate(bundle, cache=cache, sandbox="off")
        began = time.perf_counter()
        await env.start()
        ready.append(time.perf_counter() - began)
        began = time.perf_counter()
        await env.aclose()
        closing.append(time.perf_counter() - began)
    imports = {
        what: median_ms([_run(code) for _ in range(ROUNDS)])
        for what, code in (
            ("nothing", "pass"),
            ("import benchmax.envs", "import benchmax.envs"),
            ("its unavoidable parts", "import asyncio, dataclasses, typing"),
            ("import runner", "import runner"),
            ("benchmax --help", HELP),
        )
    }
    start = median_ms(ready) - median_ms(found)
    bare_ms = median_ms(bare)
    envs = imports["import benchmax.envs"] - imports["nothing"]
    parts = imports["its unavoidable parts"] - imports["nothing"]
    return [
        Row(
            "cached venv → ready, no model client (ms)",
            f"{start:.0f}",
            f"{bare_ms:.0f} (bare interpreter and imports)",
            start / bare_ms,
            "≤ 1.3",
            start <= 1.3 * bare_ms,
        ),
        at_most("find, verify and lock a cached venv", median_ms(found), 15),
        at_most("close an idle worker", median_ms(closing), 20),
        Row(
            "import benchmax.envs (ms)",
            f"{envs:.0f}",
            f"{parts:.0f} (asyncio, dataclasses, typing)",
            envs / parts,
            "≤ 1.5",
            envs <= 1.5 * parts,
        ),
        at_most("import runner, whole process", imports["import runner"], 120),
        at_most("benchmax --help, whole process", imports["benchmax --help"], 120),
    ]


def _run(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began
