"""Control groups: which may be divided, what limits are written into them, and that nothing of them is left."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import SandboxUnavailableError
from runner.limits import Limits
from runner.process import Process
from runner.sandbox import cgroups
from runner.sandbox.cgroups import (
    ABSENT,
    ELSEWHERE,
    NO_GROUPS,
    NOT_ALONE,
    Groups,
    Place,
    control_groups,
    find,
    usable_groups,
    wanted,
)
from runner.sandbox.policy import SandboxPolicy
from tests.conftest import require
from tests.integration.isolation import until

V1 = tuple(Place(controller=name, version=1, folder=f"/v1/{name}") for name in ("memory", "pids", "cpu"))
V2 = tuple(Place(controller=name, version=2, folder="/v2") for name in ("memory", "pids", "cpu"))
ALL = Limits(memory_bytes=2**20, processes=7, cpus=0.25)


# -- what is written ------------------------------------------------------------------------------------------


def test_in_version_2_a_worker_has_one_group_with_all_its_limits() -> None:
    (group,) = control_groups(ALL, Groups(places=V2, missing=()))
    assert group.parent == "/v2"
    assert group.settings == (
        ("memory.max", "1048576", True),
        ("memory.swap.max", "0", False),
        ("pids.max", "7", True),
        ("cpu.max", "25000 100000", True),
    )
    assert group.events == (("memory_bytes", "memory.events", "oom_kill"), ("processes", "pids.events", "max"))


def test_in_version_1_it_has_one_for_each_controller() -> None:
    memory, pids, cpu = control_groups(ALL, Groups(places=V1, missing=()))
    assert memory.settings == (
        ("memory.limit_in_bytes", "1048576", True),
        ("memory.memsw.limit_in_bytes", "1048576", False),
    )
    assert memory.events == (("memory_bytes", "memory.oom_control", "oom_kill"),)
    assert (pids.parent, pids.settings) == ("/v1/pids", (("pids.max", "7", True),))
    assert cpu.settings == (("cpu.cfs_period_us", "100000", True), ("cpu.cfs_quota_us", "25000", True))


@pytest.mark.parametrize("places", [V1, V2])
def test_a_start_waits_for_no_group_but_those_that_nothing_else_stands_in_for(places: tuple[Place, ...]) -> None:
    groups = Groups(places=places, missing=())
    assert [group.late for group in control_groups(Limits(), groups)] == [True]
    named = [group.settings[0][0] for group in control_groups(ALL, groups) if group.late]
    assert named == (["pids.max"] if places is V1 else [])


def test_what_is_not_limited_needs_no_group() -> None:
    without = Limits(memory_bytes=None, processes=None, cpus=None)
    assert control_groups(without, Groups(places=V2, missing=())) == ()
    assert wanted(without) == ()
    assert wanted(ALL) == ("memory", "pids", "cpu")
    assert control_groups(ALL, NO_GROUPS) == ()


def test_a_share_of_a_processor_is_never_less_than_the_kernel_takes() -> None:
    (group,) = control_groups(Limits(processes=None, cpus=0.001), Groups(places=V2, missing=()))
    assert group.settings == (("cpu.max", "1000 100000", True),)


# -- which may be divided -------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str], Path]:
    """Make a folder that looks like a group of version 2."""

    def tree(group: str) -> Path:
        folder = tmp_path / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text(f"{os.getpid()}\n")
        return folder

    return tree


@pytest.fixture
def hand_over(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Mark a folder as systemd does; not every file system would keep the mark."""

    def hand_over(group: Path) -> None:
        def marked(path: str, name: str) -> bytes:
            if Path(path) == group and name == "user.delegate":
                return b"1"
            raise OSError(61, "No data available")

        monkeypatch.setattr(os, "getxattr", marked)

    return hand_over


def mounts(folder: Path, root: str = "/", kind: str = "cgroup2", options: str = "rw") -> str:
    return f"40 30 0:30 {root} {folder} rw,nosuid shared:9 - {kind} cgroup {options}\n"


def test_a_machine_without_control_groups_says_so() -> None:
    assert find("22 27 0:21 / /proc rw - proc proc rw\n", "0::/\n") == NO_GROUPS
    assert dict(NO_GROUPS.missing) == {"memory": ABSENT, "pids": ABSENT, "cpu": ABSENT}


def test_a_group_that_is_all_there_is_can_be_divided(tmp_path: Path, tree: Callable[[str], Path]) -> None:
    tree(".")
    found = find(mounts(tmp_path), "0::/\n")
    assert found.places == tuple(replace(place, folder=str(tmp_path)) for place in V2)
    assert found.missing == ()
    # each was asked for the groups below
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_group_of_a_service_manager_is_left_alone(
    tmp_path: Path, tree: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tree("user.slice/session-1.scope")
    # also where root could
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    found = find(mounts(tmp_path), "0::/user.slice/session-1.scope\n")
    assert found == Groups(places=(), missing=tuple((name, ELSEWHERE) for name in ("memory", "pids", "cpu")))
    assert (session / "cgroup.subtree_control").read_text() == ""
    assert [path.name for path in session.iterdir() if path.is_dir()] == []


def test_a_group_that_belongs_to_the_caller_can_be_divided(
    tmp_path: Path, tree: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tree("user.slice/run-1.scope")
    os.chown(own, os.geteuid() or 1234, -1)
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid)
    found = find(mounts(tmp_path), "0::/user.slice/run-1.scope\n", ("pids",))
    assert found.places == (Place(controller="pids", version=2, folder=str(own)),)


def test_a_group_that_was_handed_over_can_be_divided(
    tmp_path: Path, tree: Callable[[str], Path], hand_over: Callable[[Path], None]
) -> None:
    own = tree("system.slice/trainer.service")
    hand_over(own)
    found = find(mounts(tmp_path), "0::/system.slice/trainer.service\n", ("pids",))
    assert [place.folder for place in found.places] == [str(own)]


def test_where_the_caller_has_moved_aside_the_group_above_is_meant(
    tmp_path: Path, tree: Callable[[str], Path], hand_over: Callable[[Path], None]
) -> None:
    own = tree("trainer.service")
    tree(f"trainer.service/{cgroups.CALLER}")
    hand_over(own)
    found = find(mounts(tmp_path), f"0::/trainer.service/{cgroups.CALLER}\n", ("pids",))
    assert [place.folder for place in found.places] == [str(own)]


def test_the_place_of_a_group_below_a_mount_of_a_part_is_found(
    tmp_path: Path, tree: Callable[[str], Path], hand_over: Callable[[Path], None]
) -> None:
    own = tree("inner")
    hand_over(own)
    found = find(mounts(tmp_path, root="/docker/1"), "0::/docker/1/inner\n", ("pids",))
    assert [place.folder for place in found.places] == [str(own)]
    assert find(mounts(tmp_path, root="/docker/1"), "0::/docker/2\n", ("pids",)).missing == (("pids", ABSENT),)


def test_each_controller_of_version_1_has_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "both").mkdir()
    text = mounts(tmp_path / "pids", kind="cgroup", options="rw,pids")
    text += mounts(tmp_path / "both", kind="cgroup", options="rw,cpu,cpuacct")
    found = find(text, "3:pids:/\n2:cpu,cpuacct:/\n1:memory:/machine\n0::/\n")
    assert found.places == (
        Place(controller="pids", version=1, folder=str(tmp_path / "pids")),
        Place(controller="cpu", version=1, folder=str(tmp_path / "both")),
    )
    assert found.missing == (("memory", ABSENT),)


def test_what_the_kernel_refuses_is_said(tmp_path: Path, tree: Callable[[str], Path]) -> None:
    tree(".")
    (tmp_path / "cgroup.subtree_control").unlink()
    (tmp_path / "cgroup.subtree_control").mkdir()
    found = find(mounts(tmp_path), "0::/\n", ("pids",))
    assert found.missing == (("pids", "the control group cannot be used: Is a directory"),)


def test_a_caller_that_is_alone_in_its_group_moves_aside_to_divide_it(
    tmp_path: Path, tree: Callable[[str], Path]
) -> None:
    own = tree(".")
    (own / "cgroup.type").write_text("domain\n")
    assert find(mounts(tmp_path), "0::/\n", ("pids",)).missing == ()
    assert (own / cgroups.CALLER / "cgroup.procs").read_text() == str(os.getpid())


def test_other_processes_in_the_group_are_in_the_way(tmp_path: Path, tree: Callable[[str], Path]) -> None:
    own = tree(".")
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    assert find(mounts(tmp_path), "0::/\n").missing == tuple((name, NOT_ALONE) for name in ("memory", "pids", "cpu"))
    # some controllers could be given all the same, which would make it a group of threads
    assert (own / "cgroup.subtree_control").read_text() == ""


def test_what_a_killed_supervisor_left_is_removed(tmp_path: Path, tree: Callable[[str], Path]) -> None:
    tree(".")
    (tmp_path / "benchmax-worker-999999999-0a").mkdir()
    (tmp_path / f"benchmax-worker-{os.getpid()}-0a").mkdir()
    (tmp_path / "somebody-elses").mkdir()
    find(mounts(tmp_path), "0::/\n", ("pids",))
    left = {path.name for path in tmp_path.iterdir() if path.is_dir() and "probe" not in path.name}
    assert left == {f"benchmax-worker-{os.getpid()}-0a", "somebody-elses"}


# -- for real -------------------------------------------------------------------------------------------------


def group_of(pid: int) -> str | None:
    """The name of the group of a worker that a process is in, if it is in one."""
    found = re.findall(r"benchmax-worker-\d+-[0-9a-f]+", Path(f"/proc/{pid}/cgroup").read_text())
    return found[0] if found else None


async def test_a_process_is_in_a_group_that_has_to_hold_from_the_beginning_before_it_runs(tmp_path: Path) -> None:
    require(usable_groups().has("cpu"), "control groups of this process's own")
    groups = control_groups(Limits(processes=None, cpus=1.0), usable_groups())
    said = b""

    def hear(data: bytes) -> None:
        nonlocal said
        said += data

    process = await Process.start(
        ["/bin/cat", "/proc/self/cgroup"], env={}, cwd=tmp_path, policy=SandboxPolicy(groups=groups), stdout=hear
    )
    how = await process.wait()
    assert (how.code, how.reached) == (0, ())
    (name,) = set(re.findall(r"benchmax-worker-\d+-[0-9a-f]+", said.decode()))
    assert not [group for group in groups if Path(group.parent, name).exists()]


async def test_a_tree_is_moved_into_a_group_that_can_wait_and_the_group_goes_with_it(tmp_path: Path) -> None:
    require(usable_groups().has("pids"), "control groups of this process's own")
    groups = control_groups(Limits(processes=30), usable_groups())
    process = await Process.start(
        ["/bin/sh", "-c", "/bin/sleep 1000; exit"], env={}, cwd=tmp_path, policy=SandboxPolicy(groups=groups)
    )
    await until(lambda: group_of(process.pid) is not None, what="the move into the group")
    folder = Path(groups[0].parent, str(group_of(process.pid)))
    await until(lambda: len((folder / "cgroup.procs").read_text().split()) == 2, what="the move of its child")
    how = await process.end(0)
    assert how.signal == signal.SIGKILL
    assert not folder.exists()


async def test_a_group_that_cannot_be_made_refuses_the_start(tmp_path: Path) -> None:
    groups = control_groups(Limits(processes=30), Groups(places=(replace(V2[1], folder=str(tmp_path / "no")),)))
    with pytest.raises(SandboxUnavailableError, match=r"cannot make a control group.*No such file"):
        await Process.start([sys.executable], env={}, cwd=tmp_path, policy=SandboxPolicy(groups=groups))
