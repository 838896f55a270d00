"""Control groups: limits on a whole tree of processes, where the caller has a group that it may divide.

Comes in: where this process is in the kernel's hierarchies, of either version. Goes out: for each controller the group
below which workers get groups of their own, or what is in the way; and what to write into them for given limits.

A group is divided only if it is the caller's: it is all that the caller sees (`/`), belongs to the caller's user, or
was marked as handed over. A group that a service manager made and did not hand over is left alone, also by root: it may
be counted, emptied or removed by whoever made it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, get_args

from runner.limits import Limits

Controller = Literal["memory", "pids", "cpu"]

PERIOD_US: Final = 100_000
"""Within which processor time is counted, as the kernel has it by default."""

CALLER: Final = "benchmax-caller"
"""The caller moves into this group of its group: in version 2 one that has processes gives controllers to no other."""

DELEGATED: Final = ("trusted.delegate", "user.delegate")
"""Attributes by which systemd marks a group that it has handed over."""

ELSEWHERE: Final = (
    "the control group of this process is somebody else's (try systemd-run --user --scope -p Delegate=yes)"
)
NOT_ALONE: Final = "other processes are in the control group of this one"
ABSENT: Final = "there is no such control group here"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where groups with one controller can be made.

    Args:
        controller: The controller.
        version: Of the interface.
        folder: The group below which they are made.
    """

    controller: Controller
    version: Literal[1, 2]
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """What of control groups can be used.

    Args:
        places: The controllers that can.
        missing: The others, each with what is in the way.
    """

    places: tuple[Place, ...] = ()
    missing: tuple[tuple[Controller, str], ...] = tuple((controller, ABSENT) for controller in get_args(Controller))

    def has(self, controller: Controller) -> bool:
        """Whether a controller can be used."""
        return any(place.controller == controller for place in self.places)


NO_GROUPS: Final = Groups()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """A group that a supervisor makes for its tree.

    Args:
        parent: The group below which it is made.
        settings: File, what to write into it, and whether it must be there.
        events: Limit by its name in `Limits`, file and word in it: a number beyond 0 says that the limit was reached.
        late: The tree is moved in once it runs. Moving takes some ten milliseconds, which a start need not wait for
            where a resource limit holds from the beginning.
    """

    parent: str
    settings: tuple[tuple[str, str, bool], ...]
    events: tuple[tuple[str, str, str], ...]
    late: bool = False


def control_groups(limits: Limits, groups: Groups) -> tuple[ControlGroup, ...]:
    """Compile limits to the groups that hold them; what no group can hold is left out."""
    found: dict[str, ControlGroup] = {}
    for place in groups.places:
        settings = tuple(_settings(place, limits))
        if settings:
            other = found.get(place.folder, ControlGroup(parent=place.folder, settings=(), events=()))
            found[place.folder] = ControlGroup(
                parent=place.folder,
                settings=(*other.settings, *settings),
                events=(*other.events, *_EVENTS.get((place.controller, place.version), ())),
            )
    return tuple(replace(group, late=[*map(itemgetter(0), group.settings)] == ["pids.max"]) for group in found.values())


_EVENTS: Final[Mapping[tuple[Controller, int], tuple[tuple[str, str, str], ...]]] = {
    ("memory", 2): (("memory_bytes", "memory.events", "oom_kill"),),
    ("memory", 1): (("memory_bytes", "memory.oom_control", "oom_kill"),),
    ("pids", 2): (("processes", "pids.events", "max"),),
    ("pids", 1): (("processes", "pids.events", "max"),),
}


def _settings(place: Place, limits: Limits) -> Iterator[tuple[str, str, bool]]:
    match place.controller, place.version:
        case "memory", version if limits.memory_bytes is not None:
            if version == 1:
                yield "memory.limit_in_bytes", str(limits.memory_bytes), True
                # memory and swap together; not there where the kernel does not count swap
                yield "memory.memsw.limit_in_bytes", str(limits.memory_bytes), False
            else:
                yield "memory.max", str(limits.memory_bytes), True
                yield "memory.swap.max", "0", False
        case "pids", _ if limits.processes is not None:
            yield "pids.max", str(limits.processes), True
        case "cpu", version if limits.cpus is not None:
            # the least that the kernel takes is a millisecond
            quota = max(1000, round(limits.cpus * PERIOD_US))
            if version == 1:
                yield "cpu.cfs_period_us", str(PERIOD_US), True
                yield "cpu.cfs_quota_us", str(quota), True
            else:
                yield "cpu.max", f"{quota} {PERIOD_US}", True
        case _:
            return


def wanted(limits: Limits) -> tuple[Controller, ...]:
    """Return the controllers that limits need."""
    values = {"memory": limits.memory_bytes, "pids": limits.processes, "cpu": limits.cpus}
    return tuple(controller for controller in get_args(Controller) if values[controller] is not None)


@functools.cache
def usable_groups(controllers: tuple[Controller, ...] = get_args(Controller)) -> Groups:
    """Find out what can be used by making groups and moving a process into them; tried once per process.

    Args:
        controllers: Those that are looked for; making and entering a group takes some milliseconds for each.
    """
    return find(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text(), controllers)


def find(mounts: str, own: str, controllers: tuple[Controller, ...] = get_args(Controller)) -> Groups:
    """Find the groups of this process that can be divided.

    Args:
        mounts: The text of `/proc/self/mountinfo`.
        own: The text of `/proc/self/cgroup`.
        controllers: Those that are looked for.
    """
    hierarchies = [*_hierarchies(mounts, own)]
    problems: dict[Controller, str] = {}
    places: dict[Controller, Place] = {}
    for controller in controllers:
        found = next((each for each in hierarchies if controller in each.controllers), None)
        if found is None:
            problems[controller] = ABSENT
        elif not found.own:
            problems[controller] = ELSEWHERE
        else:
            places[controller] = Place(controller=controller, version=found.version, folder=found.folder)
    for folder in dict.fromkeys(place.folder for place in places.values()):
        problems |= _try(folder, [place for place in places.values() if place.folder == folder])
    return Groups(
        places=tuple(place for place in places.values() if place.controller not in problems),
        missing=tuple(problems.items()),
    )


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """One hierarchy: what it controls, and this process's group in it."""

    version: Literal[1, 2]
    controllers: frozenset[str]
    folder: str
    own: bool


def _hierarchies(mounts: str, own: str) -> Iterator[_Hierarchy]:
    groups: dict[str, str] = {}
    for line in own.splitlines():
        _, names, group = line.split(":", 2)
        # without a name it is the one of version 2
        groups |= dict.fromkeys(names.split(","), group)
    for line in mounts.splitlines():
        place, _, system = line.partition(" - ")
        root, point = place.split()[3:5]
        kind, _, options = system.split(maxsplit=2)
        words = frozenset({""} if kind == "cgroup2" else options.split(",") if kind == "cgroup" else ())
        known = [groups[word] for word in words if word in groups]
        if not known or not Path(known[0]).is_relative_to(root):
            continue
        group = known[0]
        inside = Path(group).relative_to(root)
        if inside.name == CALLER:
            inside = inside.parent
        folder = str(Path(point) / inside)
        controllers = frozenset(_words(folder, "cgroup.controllers")) if kind == "cgroup2" else words
        yield _Hierarchy(2 if kind == "cgroup2" else 1, controllers, folder, _is_own(folder, group))


def _is_own(folder: str, group: str) -> bool:
    if group == "/":
        return True
    with contextlib.suppress(OSError):
        if 0 != os.geteuid() == Path(folder).stat().st_uid:
            return True
    for name in DELEGATED:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _try(folder: str, places: Sequence[Place]) -> dict[Controller, str]:
    """Make a group with each controller's limits and move a process into it; return what did not work."""
    problems: dict[Controller, str] = {}
    group = Path(folder, f"benchmax-probe-{os.getpid()}-{next(_numbers)}")
    try:
        problems |= _enable(folder, [place.controller for place in places if place.version == 2])
        if len(problems) == len(places):
            return problems
        _sweep(folder)
        group.mkdir()
    except OSError as error:
        return {place.controller: _text(error) for place in places}
    try:
        for place in places:
            try:
                for file, value, needed in _settings(place, Limits(memory_bytes=2**40, processes=100, cpus=1.0)):
                    if needed or (group / file).exists():
                        (group / file).write_text(value)
            except OSError as error:
                problems.setdefault(place.controller, _text(error))
        _join(group)
    except OSError as error:
        return {place.controller: _text(error) for place in places}
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()
    return problems


def _join(group: Path) -> None:
    with subprocess.Popen(["/bin/sh", "-c", "read _"], stdin=subprocess.PIPE, env={}) as process:
        (group / "cgroup.procs").write_text(str(process.pid))


def _enable(folder: str, controllers: Sequence[Controller]) -> dict[Controller, str]:
    """Give controllers of version 2 to the groups below; return what is in the way."""
    enabled = _words(folder, "cgroup.subtree_control")
    lacking = [controller for controller in controllers if controller not in enabled]
    # the very top one may have processes; any other would become a group of threads, below which no process can be
    if lacking and Path(folder, "cgroup.type").exists():
        inside = _words(folder, "cgroup.procs")
        if inside == [str(os.getpid())]:
            aside = Path(folder, CALLER)
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text(inside[0])
        elif inside:
            return dict.fromkeys(lacking, NOT_ALONE)
    problems: dict[Controller, str] = {}
    for controller in lacking:
        try:
            Path(folder, "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            problems[controller] = _text(error)
    return problems


def _sweep(folder: str) -> None:
    """Remove what supervisors that were killed have left."""
    for name in os.listdir(folder):  # noqa: PTH208 - names are all that is wanted
        worker = name.removeprefix("benchmax-worker-")
        if worker != name and not Path("/proc", worker.partition("-")[0]).exists():
            # one that has processes is not empty, and stays
            with contextlib.suppress(OSError):
                Path(folder, name).rmdir()


def _words(folder: str, file: str) -> list[str]:
    try:
        return Path(folder, file).read_text().split()
    except OSError:
        return []


def _text(error: OSError) -> str:
    return f"the control group cannot be used: {os.strerror(error.errno or 0)}"
