"""Programs that take more of the machine than they may, started by a caller that is root or an ordinary user.

`take` is for tests. Run as a program, it is the caller: standard input has the limits and the programs as JSON, and
standard output gets what became of each at each level.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from runner.limits import Limits
from runner.process import OutputTail, Process
from runner.sandbox.cgroups import usable_groups, wanted
from runner.sandbox.fitting import fit
from runner.sandbox.levels import choose_policy, what_is_not_limited
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import Plan
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability
from runner.sandbox.view import interpreter
from tests.confined import BASE, Caller, caller_steps, user_of
from tests.conftest import require

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "runner" / "sandbox" / "launcher.py"
MIB = 1024**2
PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What became of a program.

    Args:
        how: How its process ended.
        reached: The limits on the whole tree that it is known to have met.
        said: What it printed last.
        dropped: Bytes that it printed and that were not kept.
        left: Whether something of its folder was left after it.
    """

    how: str
    reached: tuple[str, ...]
    said: str
    dropped: int
    left: bool


@dataclass(frozen=True, kw_only=True)
class Told:
    """What became of all programs.

    Args:
        groups: The controllers of which the caller can make control groups.
        not_limited: Level → what is said not to be limited there.
        taken: Level → name of the program → what became of it; without levels that do not work here.
    """

    groups: tuple[str, ...]
    not_limited: Mapping[str, tuple[str, ...]]
    taken: Mapping[str, Mapping[str, Taken]]


def take(caller: Caller, limits: Mapping[str, float | None], programs: Mapping[str, str]) -> Told:
    """Run programs of the base interpreter, their code by name, at every level at the same time."""
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    with tempfile.TemporaryDirectory(prefix="benchmax-taking-") as outer:
        Path(outer).chmod(0o777)
        needed = [sys.prefix, *interpreter(BASE), str(ROOT), outer]
        plan = Plan(
            steps=tuple(caller_steps(user_of(caller), needed, writable=(outer,))),
            argv=(sys.executable, "-B", "-m", "tests.hostile.taking"),
        )
        order = json.dumps({"limits": limits, "programs": programs, "folder": outer})
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": outer}
        config = {"steps": plan.steps, "argv": plan.argv, "env": environment, "cwd": str(ROOT), "umask": 0o077}
        with tempfile.TemporaryFile() as source:
            source.write(json.dumps(config).encode())
            source.seek(0)
            done = subprocess.run(
                [BASE, "-I", "-S", str(LAUNCHER), str(source.fileno())],
                input=order.encode(),
                pass_fds=[source.fileno()],
                capture_output=True,
                timeout=PATIENCE_S,
                check=False,
            )
        assert done.returncode == 0, done.stderr.decode()
        told = json.loads(done.stdout)
    return Told(
        groups=tuple(told["groups"]),
        not_limited={level: tuple(texts) for level, texts in told["not_limited"].items()},
        taken={
            level: {name: Taken(**{**found, "reached": tuple(found["reached"])}) for name, found in programs.items()}
            for level, programs in told["taken"].items()
        },
    )


async def _run(level: Level, name: str, code: str, limits: Limits, folder: Path) -> Taken:
    outer = folder / f"{level}-{name.replace(' ', '-')}"
    for inner in ("private/home", "private/tmp", "private/work"):
        (outer / inner).mkdir(parents=True)
    outer.chmod(0o711)
    private = outer / "private"
    policy = fit(
        choose_policy(level, "open", limits=limits), this_machine(), private=private, readable=interpreter(BASE)
    )
    output = OutputTail(limits.output_bytes)
    process = await Process.start(
        [BASE, "-I", "-u", "-c", code],
        env={"PATH": "/usr/bin:/bin", "HOME": f"{private}/home", "TMPDIR": f"{private}/tmp"},
        cwd=private / "work",
        policy=policy,
        stdout=output.write,
        stderr=output.write,
        remove=outer,
    )
    how = await process.wait()
    said = "".join(output.last_lines(1))
    return Taken(how=str(how), reached=how.reached, said=said[-200:], dropped=output.dropped, left=outer.exists())


async def _main() -> dict[str, Any]:
    order = json.load(sys.stdin)
    limits = Limits(**order["limits"])
    levels = [level for level in get_args(Level) if availability(level).available]
    work = [(level, name, code) for level in levels for name, code in order["programs"].items()]
    taken = await asyncio.gather(*(_run(*each, limits, Path(order["folder"])) for each in work))
    return {
        "groups": [place.controller for place in usable_groups(wanted(limits)).places],
        "not_limited": {level: what_is_not_limited(level, limits) for level in levels},
        "taken": {
            level: {
                name: dataclasses.asdict(found) for (at, name, _), found in zip(work, taken, strict=True) if at == level
            }
            for level in levels
        },
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_main())))
