"""The launcher as a program: what it becomes, what it says when it cannot, what it leaves as it was."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import get_args

import pytest

from runner.sandbox.closed import closed_folders
from runner.sandbox.launcher import EXIT_FAILED
from runner.sandbox.plan import Plan, Step
from runner.sandbox.policy import Level
from runner.sandbox.probe import launch
from tests.confined import BASE, ORDINARY, Caller, box
from tests.conftest import require

SHELL = ("/bin/sh", "-c")


def run(*steps: Step, argv: tuple[str, ...] = ("/bin/true",)) -> tuple[int, str]:
    done = launch(Plan(steps=steps, argv=argv), cwd="/", env={}, timeout_s=60)
    return done.returncode, (done.stdout + done.stderr).decode().strip()


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (
            {"do": "reach", "paths": ["/usr", "/nowhere/at/all"]},
            "cannot reach what the command needs (/nowhere/at/all): No such file or directory",
        ),
        ({"do": "open-file", "descriptor": 50, "path": "/no"}, "cannot open a file (/no): No such file or directory"),
        (
            {"do": "restrict", "handled": 4, "scoped": 0, "rules": [["/no", 4, True]], "file_rights": 4},
            "cannot apply Landlock rules (/no): No such file or directory",
        ),
        (
            {"do": "restrict", "handled": 1 << 62, "scoped": 0, "rules": [], "file_rights": 0},
            "cannot apply Landlock rules: Invalid argument",
        ),
        ({"do": "filter", "program": "AAAAAAAAAAA="}, "cannot apply the system call filter: Invalid argument"),
        (
            {"do": "limit", "name": "NOFILE", "soft": 10, "hard": 5},
            "cannot set the limit NOFILE: current limit exceeds maximum limit",
        ),
    ],
)
def test_a_step_that_fails_ends_the_launch_and_says_which(step: Step, text: str) -> None:
    code, said = run({"do": "no-new-privileges"}, step)
    assert code == EXIT_FAILED
    assert said.startswith("launcher: ")
    assert text in said


def test_a_command_that_is_not_there_is_said() -> None:
    assert run(argv=("/no/such/program",)) == (
        EXIT_FAILED,
        "launcher: [Errno 2] No such file or directory: '/no/such/program'",
    )


def test_a_rule_for_what_need_not_be_there_is_left_out() -> None:
    rules = [["/", 15, True], ["/no", 4, False]]
    step = {"do": "restrict", "handled": 4, "scoped": 0, "rules": rules, "file_rights": 4}
    assert run({"do": "no-new-privileges"}, {**step, "rules": [["/", 4, True], ["/no", 4, False]]}) == (0, "")


def test_limits_are_never_raised() -> None:
    assert run(
        {"do": "limit", "name": "NOFILE", "soft": 64, "hard": 64},
        {"do": "limit", "name": "NOFILE", "soft": 4096, "hard": 4096},
        argv=(*SHELL, "ulimit -n; ulimit -Hn"),
    ) == (0, "64\n64")


def test_a_user_that_was_given_up_does_not_come_back() -> None:
    require(os.geteuid() == 0, "root")
    code, said = run(
        {"do": "become", "uid": ORDINARY},
        {"do": "drop-capabilities"},
        argv=(*SHELL, "id -u; id -G; grep -E '^Cap(Eff|Prm|Inh|Amb)' /proc/self/status | sort -u -k2"),
    )
    assert code == 0
    uid, groups, *capabilities = said.splitlines()
    assert uid == groups == str(ORDINARY)
    assert [line.split()[1] for line in capabilities] == ["0" * 16]


def test_what_a_user_cannot_read_is_said_before_the_command_runs(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    with box("namespaces", "root") as confined:
        secret = confined.folder.parent / "module.py"
        secret.write_text("x = 1")
        secret.chmod(0o600)
        done = confined.run([BASE, "-c", "pass"], readable=[str(secret)])
    assert done.returncode == EXIT_FAILED
    assert f"cannot reach what the command needs ({secret}): Permission denied" in done.stderr.decode()


def test_closed_folders_are_shown_without_opening_them(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    closed = tmp_path / "closed"
    (closed / "needed").mkdir(parents=True)
    (closed / "needed" / "file").write_text("shown")
    (closed / "secret").write_text("hidden")
    closed.chmod(0o700)
    for folder in (closed, *closed.parents):
        if not closed_folders([str(folder / "x")], ORDINARY):
            break
    outermost = next(iter(closed_folders([str(closed / "needed")], ORDINARY)))
    before = stat.S_IMODE(Path(outermost).stat().st_mode)
    code, said = run(
        {"do": "mounts"},
        {"do": "show", "folder": outermost, "paths": [[str(closed / "needed"), False]]},
        {"do": "become", "uid": ORDINARY},
        argv=(*SHELL, f"cat {closed}/needed/file; ls {closed}; touch {closed}/new {closed}/needed/new"),
    )
    assert said.splitlines()[0] == "shownneeded"
    assert "secret" not in said
    assert said.count("Read-only file system") == 2
    assert code == 1
    assert stat.S_IMODE(Path(outermost).stat().st_mode) == before == 0o700
    # nothing of it is seen by anybody else
    assert (closed / "secret").read_text() == "hidden"


def test_one_file_of_a_closed_folder_can_be_shown(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    file = tmp_path / "file"
    file.write_text("shown")
    outermost = next(iter(closed_folders([str(file)], ORDINARY)))
    step = {"do": "show", "folder": outermost, "paths": [[str(file), False]]}
    assert run({"do": "mounts"}, step, {"do": "become", "uid": ORDINARY}, argv=("/bin/cat", str(file))) == (0, "shown")


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("level", get_args(Level))
def test_the_end_of_the_command_is_told(level: Level, caller: Caller) -> None:
    require(caller == "ordinary" or os.geteuid() == 0, "root")
    relayed = level == "namespaces"
    with box(level, caller) as confined:
        assert confined.run([*SHELL, "exit 7"]).returncode == 7
        killed = confined.run([*SHELL, "kill -SEGV $$"]).returncode
        assert killed == (128 + signal.SIGSEGV if relayed else -signal.SIGSEGV)


@pytest.mark.parametrize("level", get_args(Level))
def test_only_the_descriptors_that_were_given_arrive(level: Level) -> None:
    reading, writing = os.pipe()
    try:
        with box(level, "ordinary") as confined:
            listed = confined.python(
                "import os, sys; fd = int(sys.argv[1]); os.write(fd, b'hello'); os.close(fd)\n"
                "print([n for n in range(256) if os.path.exists(f'/proc/self/fd/{n}')])",
                str(writing),
                descriptors=[writing],
            )
        assert os.read(reading, 100) == b"hello"
        assert listed == "[0, 1, 2]"
    finally:
        os.close(reading)
        os.close(writing)
