"""From nothing to a ready worker, beside uv and pip used by hand for the same packages in the same run.

Each of ours runs in a process of its own, from after `import runner` to the ready worker. The references make a venv,
install, and import there what a worker imports. Wheels are in the installers' caches, each in its own way, before.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmax.bundle import dump_bundle
from runner import write_artifact
from runner.artifact import read_artifact
from runner.provision import Cache, make_lock, provision
from runner.provision.link_mode import link_mode
from runner.provision.uv import find_uv
from scripts.benchmarks import subject
from scripts.benchmarks.table import Row, at_most, median_ms

ROUNDS = 7
SLOW_ROUNDS = 3
"""Of what takes many seconds."""

STEERING = ("PYTHON", "PIP_", "UV_", "VIRTUALENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)} | {
    "PIP_CONFIG_FILE": os.devnull
}
"""No variables or files of this machine that steer Python, pip or uv."""

PACKAGES = ["cloudpickle", "httpx", "msgspec", "openai", "packaging"]
IMPORTS = "import asyncio, msgspec, cloudpickle, packaging.requirements, benchmax.envs, benchmax.bundle"

OURS = """
import asyncio, sys, time
from pathlib import Path
from runner import isolate
from runner.provision import Cache, ProvisionOptions

async def main():
    folder, root, installer = sys.argv[1:]
    env = isolate(Path(folder), cache=Cache(root), provisioning=ProvisionOptions(installer=installer))
    began = time.perf_counter()
    await env.start()
    print(time.perf_counter() - began)
    await env.aclose()

asyncio.run(main())
"""

FOUND = """
import asyncio, sys, time
from pathlib import Path
from runner.artifact import read_artifact
from runner.provision import Cache, provision

async def main():
    metadata, cache = read_artifact(Path(sys.argv[1])).bundle.metadata, Cache(sys.argv[2])
    began = time.perf_counter()
    venv = await provision(metadata, cache=cache)
    assert venv.lease is not None
    print(time.perf_counter() - began)

asyncio.run(main())
"""


async def measure() -> list[Row]:
    """Measure and return rows."""
    with tempfile.TemporaryDirectory(prefix="benchmax-bench-") as folder:
        return await _Bench(Path(folder)).rows()


class _Bench:
    def __init__(self, folder: Path) -> None:
        found = find_uv()
        if found is None:
            raise SystemExit("this benchmark needs uv")
        self._uv = str(found[0])
        self._folder = folder
        self._cache = Cache(folder / "cache")
        self._artifact, self._locked = folder / "artifact", folder / "locked"
        self._by_hand = folder / "by-hand"
        self._pip_cache = folder / "pip-cache"
        bundle = dump_bundle(subject.NoOp, local_modules=[subject])
        for place in (self._artifact, self._locked):
            write_artifact(bundle, place)

    async def rows(self) -> list[Row]:
        metadata = read_artifact(self._artifact).bundle.metadata
        lock, _ = await make_lock(metadata, cache=self._cache)
        (self._locked / "pylock.toml").write_text(lock.text)
        venv = await provision(metadata, cache=self._cache)
        self._base = str(venv.base_python)
        self._lock = self._folder / "pylock.toml"
        self._lock.write_bytes((venv.path / "pylock.toml").read_bytes())
        (self._wheel,) = map(str, self._cache.wheels_dir.glob("*/*.whl"))
        self._mode = await asyncio.to_thread(link_mode, self._folder)
        # once without counting: both sides' wheels are in the cache afterwards
        for prepare in (self._ours_locked, self._sync_online, self._pip_by_hand):
            await asyncio.to_thread(prepare)
        quick = await asyncio.to_thread(
            self._turns, ROUNDS, self._ours_locked, self._sync, self._ours_resolved, self._uv_install
        )
        ours_locked, sync, ours_resolved, uv_install = quick
        ours_cold_pip, pip_cold = await asyncio.to_thread(self._turns, SLOW_ROUNDS, self._ours_pip, self._pip_cold)
        (pip,) = await asyncio.to_thread(self._turns, SLOW_ROUNDS, self._pip_by_hand)
        found = await asyncio.to_thread(self._found)
        times = 15 if self._mode == "clone" else 5
        how = "reflinks" if self._mode == "clone" else "files copied"
        return [
            _row(f"ready worker, lock, warm ({how})", ours_locked, pip, "virtualenv + pip", 1 / times, f"≤ 1/{times}"),
            _row(
                f"ready worker, lock, warm ({how})",
                ours_locked,
                sync,
                f"uv venv + uv pip sync --offline --link-mode {self._mode} + imports",
                1.3,
                "≤ 1.3",
            ),
            _row("ready worker, no lock, warm", ours_resolved, uv_install, "uv venv + uv pip install", 1.2, "≤ 1.2"),
            _row("ready worker, no lock, cold, with pip", ours_cold_pip, pip_cold, "virtualenv + pip", 1.0, "≤ 1"),
            at_most("find, verify and lock a cached venv, fresh process", found, 15),
        ]

    # -- ours ---------------------------------------------------------------------------------------------------

    def _ours_locked(self) -> float:
        return self._ours(self._locked, "uv")

    def _ours_resolved(self) -> float:
        return self._ours(self._artifact, "uv")

    def _ours_pip(self) -> float:
        shutil.rmtree(self._cache.pip_dir, ignore_errors=True)
        return self._ours(self._artifact, "pip")

    def _ours(self, artifact: Path, installer: str) -> float:
        for entry in self._cache.venvs_dir.glob("*"):
            self._cache.clear(entry.name)
        return self._timed(OURS, str(artifact), str(self._cache.root), installer)

    def _found(self) -> float:
        self._timed(OURS, str(self._artifact), str(self._cache.root), "auto")
        return median_ms([self._timed(FOUND, str(self._artifact), str(self._cache.root)) for _ in range(ROUNDS)])

    def _timed(self, code: str, *words: str) -> float:
        command = [sys.executable, "-c", code, *words]
        finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        return float(finished.stdout)

    # -- by hand ------------------------------------------------------------------------------------------------

    def _sync(self) -> float:
        return self._uv_by_hand("pip", "sync", "--offline", "--preview-features", "pylock", str(self._lock))

    def _sync_online(self) -> float:
        return self._uv_by_hand("pip", "sync", "--preview-features", "pylock", str(self._lock))

    def _uv_install(self) -> float:
        return self._uv_by_hand("pip", "install", self._wheel, *PACKAGES)

    def _uv_by_hand(self, *words: str) -> float:
        shared = ("--quiet", "--no-config", "--cache-dir", str(self._cache.uv_dir))
        python = self._by_hand / "bin" / "python"
        return self._commands(
            [self._uv, "venv", *shared, "--python", self._base, str(self._by_hand)],
            [self._uv, *words, *shared, "--link-mode", self._mode, "--python", str(python)],
            [str(python), "-s", "-P", "-c", IMPORTS],
        )

    def _pip_cold(self) -> float:
        shutil.rmtree(self._pip_cache, ignore_errors=True)
        return self._pip_by_hand()

    def _pip_by_hand(self) -> float:
        python = self._by_hand / "bin" / "python"
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        return self._commands(
            [
                sys.executable,
                "-m",
                "virtualenv",
                "--quiet",
                "--no-periodic-update",
                "--python",
                self._base,
                str(self._by_hand),
            ],
            [str(python), *install, "--cache-dir", str(self._pip_cache), self._wheel, *PACKAGES],
            [str(python), "-s", "-P", "-c", IMPORTS],
        )

    def _commands(self, *commands: Sequence[str]) -> float:
        shutil.rmtree(self._by_hand, ignore_errors=True)
        began = time.perf_counter()
        for command in commands:
            subprocess.run(command, check=True, env=ENVIRONMENT)
        return time.perf_counter() - began

    @staticmethod
    def _turns(rounds: int, *what: Callable[[], float]) -> list[float]:
        """Measure in turn, so that a slow moment of the machine hits all alike; return medians in milliseconds."""
        taken = [[one() for one in what] for _ in range(rounds)]
        return [median_ms(column) for column in zip(*taken, strict=True)]


def _row(what: str, ours_ms: float, reference_ms: float, reference: str, goal: float, spelled: str) -> Row:
    ratio = ours_ms / reference_ms
    return Row(f"{what} (ms)", f"{ours_ms:.0f}", f"{reference_ms:.0f} ({reference})", ratio, spelled, ratio <= goal)
