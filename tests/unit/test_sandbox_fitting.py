"""A policy fitted to one worker: its user, what that user cannot enter, its limits, its copy of the data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from runner.errors import SandboxUnavailableError, UsageError
from runner.limits import Limits
from runner.sandbox.cgroups import NO_GROUPS, Controller, Groups, Place
from runner.sandbox.closed import closed_folders, without_inner
from runner.sandbox.data import DataCopies, copy_data
from runner.sandbox.fitting import closed_to, fit
from runner.sandbox.machine import effective_capabilities, id_ranges, look
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.resources import not_limited, rlimits, tasks_of
from runner.sandbox.unprivileged import COUNT, FIRST, NOBODY, unprivileged_user
from runner.sandbox.view import interpreter
from tests.unit.test_sandbox_plan import MACHINE, ROOT

STRANGER = FIRST + 7


# -- who it is ------------------------------------------------------------------------------------------------


def test_an_ordinary_caller_stays_who_it_is() -> None:
    assert unprivileged_user(MACHINE) is None


def test_root_becomes_a_user_that_nobody_else_is() -> None:
    assert unprivileged_user(ROOT, lambda count: count - 1) == FIRST + COUNT - 1
    drawn = {unprivileged_user(ROOT) for _ in range(50)}
    assert len(drawn) == 50


def test_in_a_container_with_few_users_root_becomes_nobody() -> None:
    assert unprivileged_user(replace(ROOT, uids=((0, 65536),))) == NOBODY
    assert unprivileged_user(replace(ROOT, uids=((0, 1),))) is None


@pytest.mark.parametrize("missing", [0, 6, 7])
def test_root_without_the_capability_stays_root(missing: int) -> None:
    assert unprivileged_user(replace(ROOT, capabilities=ROOT.capabilities - {missing})) is None


def test_what_the_kernel_says_of_a_process_is_read() -> None:
    assert effective_capabilities("Name:\tx\nCapEff:\t00000000a80425fb\n") == {
        0,
        1,
        3,
        4,
        5,
        6,
        7,
        8,
        10,
        13,
        18,
        27,
        29,
        31,
    }
    assert effective_capabilities("Name:\tx\n") == frozenset()
    assert list(id_ranges("         0     100000      65536\n     70000          1          2\n")) == [
        (0, 65536),
        (70000, 2),
    ]
    assert look().uid == os.geteuid()


# -- what it cannot enter -------------------------------------------------------------------------------------


@pytest.fixture
def outer(tmp_path: Path) -> Path:
    """A folder whose own parents are open to everybody for the stranger, as far as they are not pytest's."""
    folder = tmp_path / "outer"
    folder.mkdir()
    return folder


def test_only_the_outermost_closed_folder_is_named(outer: Path) -> None:
    path = outer / "a" / "b" / "venv"
    path.mkdir(parents=True)
    (outer / "a").chmod(0o700)
    (outer / "a" / "b").chmod(0o700)
    closed = closed_folders([str(path), str(path / "x")], STRANGER)
    assert sorted(below for paths in closed.values() for below in paths) == [str(path), str(path / "x")]
    assert len(closed) == 1
    assert str(outer / "a" / "b") not in closed


def test_a_folder_that_everybody_may_enter_is_not_closed() -> None:
    assert closed_folders(["/usr/bin/env", "/etc/hosts"], STRANGER) == {}


def test_a_folder_of_its_own_is_open_to_a_user(outer: Path) -> None:
    outer.chmod(0o700)
    mine = closed_folders([str(outer / "x")], os.geteuid())
    others = closed_folders([str(outer / "x")], STRANGER)
    assert mine == {}
    assert list(others.values()) == [(str(outer / "x"),)]


def test_paths_below_others_are_left_out() -> None:
    assert without_inner(["/a/b", "/a", "/ab", "/c/d", "/c/d"]) == ("/a", "/ab", "/c/d")


# -- fitted ---------------------------------------------------------------------------------------------------


def test_what_is_asked_for_by_a_link_is_there_by_both_names_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    fitted = fit(
        SandboxPolicy(level="landlock"),
        MACHINE,
        private=tmp_path / "link",
        readable=[str(tmp_path / "link"), str(real), str(tmp_path / "none")],
    )
    assert fitted.private == str(real)
    assert fitted.readable == (str(tmp_path / "link"), str(real))
    assert fitted.uid is None
    assert closed_to(fitted) == {}


def test_at_off_root_keeps_its_user_since_the_data_is_the_real_one(tmp_path: Path) -> None:
    assert fit(SandboxPolicy(level="off"), ROOT, private=tmp_path, readable=[]).uid is None
    assert fit(SandboxPolicy(level="namespaces"), ROOT, private=tmp_path, readable=[]).uid is not None


def test_a_limit_on_processes_comes_on_top_of_what_the_user_runs_already(tmp_path: Path) -> None:
    policy = SandboxPolicy(level="landlock", rlimits=rlimits(Limits(), tasks=0))
    mine = replace(MACHINE, uid=os.geteuid())
    ours = {name: hard for name, _, hard in fit(policy, mine, private=tmp_path, readable=[]).rlimits}
    alone = {name: hard for name, _, hard in fit(policy, ROOT, private=tmp_path, readable=[]).rlimits}
    assert alone["NPROC"] == 1024
    assert ours["NPROC"] > 1024
    assert tasks_of(os.geteuid()) >= 1
    assert tasks_of(STRANGER) == 0


def test_limits_are_compiled_to_resource_limits() -> None:
    limits = Limits(memory_bytes=100, processes=5, open_files=600, file_bytes=7)
    assert rlimits(limits, tasks=2) == (
        ("CORE", 1, 1),
        ("DATA", 100, 100),
        ("NPROC", 7, 7),
        ("NOFILE", 600, 600),
        ("FSIZE", 7, 7),
    )
    assert rlimits(Limits(processes=None, open_files=None, file_bytes=None), tasks=2) == (("CORE", 1, 1),)


ALL = Groups(
    places=tuple(Place(controller=controller, version=2, folder="/g") for controller in get_args(Controller)),
    missing=(),
)


@pytest.mark.parametrize(
    ("limits", "groups", "who", "said"),
    [
        (Limits(memory_bytes=1, cpus=0.5), ALL, "other", ["disk space: measured twice a second"]),
        (Limits(memory_bytes=1, cpus=0.5), ALL, "root", ["disk space: only the worker's own folders"]),
        (
            Limits(memory_bytes=1, cpus=0.5),
            NO_GROUPS,
            "root",
            ["memory: limited for each process", "processes: the kernel does not", "processor time: there is", "disk"],
        ),
        (
            Limits(),
            NO_GROUPS,
            "ordinary",
            ["memory: no limit", "processes: counted together", "processor time", "disk"],
        ),
        (Limits(), NO_GROUPS, "other", ["memory: no limit", "processor time: no limit", "disk"]),
        (
            Limits(processes=None, disk_bytes=None),
            ALL,
            "other",
            ["memory", "processes: no", "processor", "disk space: no"],
        ),
    ],
)
def test_what_limits_do_not_hold_is_said(limits: Limits, groups: Groups, who: str, said: list[str]) -> None:
    found = not_limited(limits, groups, sandboxed=who != "root", root=who == "root", own_user=who == "other")
    assert len(found) == len(said)
    assert all(text.startswith(begin) for text, begin in zip(found, said, strict=True)), found


def test_an_interpreter_is_its_prefix_and_its_library(tmp_path: Path) -> None:
    for name in ("bin/python3.12", "lib/python3.12/os.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert interpreter(str(tmp_path / "bin/python3.12")) == (
        str(tmp_path),
        str(tmp_path / "bin/python3.12"),
        str(tmp_path / "lib/python3.12/os.py"),
    )


def test_an_interpreter_whose_folder_is_a_home_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for base in (tmp_path / "me/bin/python3.12", tmp_path / "bin/python3.12", Path("/bin/python3.12")):
        with pytest.raises(SandboxUnavailableError, match="holds more than it"):
            interpreter(str(base))


# -- data -----------------------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "inner").mkdir(parents=True)
    (folder / "train.jsonl").write_text("one\n")
    (folder / "inner" / "eval.jsonl").write_text("two\n")
    (tmp_path / "elsewhere").write_text("three\n")
    (folder / "link.jsonl").symlink_to(tmp_path / "elsewhere")
    (folder / "broken").symlink_to(tmp_path / "nothing")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    folder.mkdir()
    return folder


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_data_is_copied_with_what_its_links_lead_to(data: Path, staging: Path, tmp_path: Path) -> None:
    copy_data(data, tmp_path / "0" / "copy", staging=staging, limits=Limits())
    assert files(tmp_path / "0" / "copy") == {
        "train.jsonl": "one\n",
        "inner/eval.jsonl": "two\n",
        "link.jsonl": "three\n",
    }
    assert not [path for path in (tmp_path / "0" / "copy").rglob("*") if path.is_symlink()]
    (tmp_path / "0" / "copy" / "train.jsonl").write_text("changed")
    (tmp_path / "0" / "copy" / "link.jsonl").write_text("changed")
    assert (data / "train.jsonl").read_text() == "one\n"
    assert (tmp_path / "elsewhere").read_text() == "three\n"


@pytest.mark.parametrize("limits", [Limits(data_bytes=13), Limits(data_files=4)])
def test_data_beyond_a_limit_is_refused_and_nothing_is_left(
    data: Path, staging: Path, tmp_path: Path, limits: Limits
) -> None:
    with pytest.raises(UsageError, match=r"cannot copy .*/data for a sandboxed worker: it holds more than"):
        copy_data(data, tmp_path / "0" / "copy", staging=staging, limits=limits)
    assert not (tmp_path / "0").exists()
    assert [*staging.iterdir()] == []


def test_data_at_a_limit_is_copied(data: Path, staging: Path, tmp_path: Path) -> None:
    copy_data(data, tmp_path / "0" / "copy", staging=staging, limits=Limits(data_bytes=14, data_files=5))
    assert len(files(tmp_path / "0" / "copy")) == 3


def test_links_that_lead_back_up_are_left_out(data: Path, staging: Path, tmp_path: Path) -> None:
    (data / "inner" / "up").symlink_to(data)
    (data / "same").symlink_to(data / "inner")
    copy_data(data, tmp_path / "0" / "copy", staging=staging, limits=Limits())
    assert sorted(files(tmp_path / "0" / "copy")) == [
        "inner/eval.jsonl",
        "link.jsonl",
        "same/eval.jsonl",
        "train.jsonl",
    ]


def test_the_staging_folder_is_left_out_where_it_lies_in_the_data(data: Path) -> None:
    (data / "worker" / "staging").mkdir(parents=True)
    copy_data(data, data / "worker" / "0" / "copy", staging=data / "worker" / "staging", limits=Limits())
    assert [path.name for path in (data / "worker" / "0" / "copy" / "worker").iterdir()] == []
    assert [path.name for path in (data / "worker" / "staging").iterdir()] == []


def test_a_link_in_the_place_of_the_copy_is_not_followed(data: Path, staging: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "0").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="Not a directory"):
        copy_data(data, tmp_path / "0" / "copy", staging=staging, limits=Limits())
    assert [*(tmp_path / "victim").iterdir()] == [*staging.iterdir()] == []


def test_a_folder_is_copied_again_only_when_it_has_changed(data: Path, staging: Path, tmp_path: Path) -> None:
    copies = DataCopies(tmp_path / "copies", staging, None, Limits())
    (tmp_path / "copies").mkdir()
    first = copies.of(data)
    assert first.name == data.name
    (first / "own.txt").write_text("written by the bundle")
    assert copies.of(data) == first
    (data / "train.jsonl").write_text("changed since\n")
    second = copies.of(data)
    assert second != first
    assert (second / "train.jsonl").read_text() == "changed since\n"
    assert not (second / "own.txt").exists()


def test_what_is_no_folder_is_named_as_it_is(staging: Path, tmp_path: Path) -> None:
    copies = DataCopies(tmp_path / "copies", staging, None, Limits())
    assert copies.of(tmp_path / "nothing") == tmp_path / "nothing"


def test_a_single_file_is_copied_too(data: Path, staging: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    copies = DataCopies(tmp_path / "copies", staging, None, Limits())
    copy = copies.of(data / "train.jsonl")
    assert (copy.name, copy.read_text()) == ("train.jsonl", "one\n")
    assert copies.of(data / "train.jsonl") == copy
    (data / "train.jsonl").write_text("two\n")
    assert copies.of(data / "train.jsonl").read_text() == "two\n"
