"""Which levels work here, found out by trying; and what is said where one does not."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from runner.errors import SandboxUnavailableError, UsageError
from runner.sandbox import probe
from runner.sandbox.landlock import NEEDED_VERSION
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import look
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability, require_level, strongest
from tests.confined import BASE, box
from tests.conftest import require

SOURCES = Path(probe.__file__).parents[1]
ASK = (
    "import sys; sys.path.append(sys.argv[1])\n"
    "from runner.sandbox.probe import availability\n"
    "print(availability('namespaces').blocker)"
)


@pytest.mark.parametrize("level", get_args(Level))
def test_a_level_works_here_or_the_blocker_is_named(level: Level) -> None:
    found = availability(level)
    assert found.mechanism
    if found.available:
        require_level(level)
        return
    assert found.blocker is not None
    assert found.blocker.fact
    assert found.blocker.remedy
    with pytest.raises(SandboxUnavailableError) as caught:
        require_level(level)
    assert found.blocker.fact in caught.value.message
    assert found.blocker.remedy in caught.value.hint


def test_landlock_works_where_the_kernel_has_enough_of_it() -> None:
    machine = look()
    assert availability("landlock").available == (machine.landlock >= NEEDED_VERSION)


def test_auto_is_the_strongest_level_that_works() -> None:
    machine = look()
    assert strongest() == next(level for level in reversed(get_args(Level)) if availability(level).available)
    assert strongest(replace(machine, bubblewrap=None, landlock=0)) == "off"
    if availability("landlock").available:
        assert strongest(replace(machine, bubblewrap=None)) == "landlock"


def test_a_level_by_name_that_does_not_work_is_an_error() -> None:
    machine = replace(look(), bubblewrap=None, landlock=0)
    for level, text in (
        ("namespaces", "sandbox namespaces: the program bwrap is not installed. Install it"),
        ("landlock", "sandbox landlock: this kernel offers no Landlock; version 3 (Linux 6.2) is needed. Use a newer"),
    ):
        with pytest.raises(SandboxUnavailableError) as caught:
            choose_policy(level, "open", machine=machine)
        assert str(caught.value).startswith(text)
    assert choose_policy("auto", "open", machine=machine).level == "off"


def test_what_is_not_known_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"'docker' is not known\. Use one of: auto, off, landlock, namespaces"):
        choose_policy("docker", "open")
    with pytest.raises(UsageError, match="network 'closed' is not known"):
        choose_policy("auto", "closed")


def test_root_that_cannot_become_anybody_else_gets_no_sandbox() -> None:
    machine = replace(look(), uid=0, capabilities=frozenset())
    found = availability("namespaces", machine)
    assert found.blocker is not None
    assert found.blocker.fact == "root cannot become another user here"


def test_inside_of_a_sandbox_there_is_no_other_one() -> None:
    require(availability("landlock").available, "Landlock")
    require(look().bubblewrap, "bubblewrap")
    with box("landlock", "ordinary") as confined:
        copied = shutil.copytree(SOURCES, confined.folder.parent / "code" / "runner")
        said = confined.python(ASK, str(copied.parent), readable=[str(copied.parent)])
    assert "a system call filter, probably of a container, forbids namespaces" in said


def test_a_machine_without_user_namespaces_says_which_setting_it_is() -> None:
    require(availability("namespaces").available, "bubblewrap and user namespaces")
    require(os.geteuid() == 0, "root")
    script = f'echo 0 > /proc/sys/user/max_user_namespaces && exec {BASE} -I -c "$0" {SOURCES.parent}'
    done = subprocess.run(
        [
            "/usr/bin/unshare",
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            "--keep-caps",
            "/bin/sh",
            "-c",
            script,
            ASK,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "user.max_user_namespaces is 0" in done.stdout
    assert "sysctl user.max_user_namespaces=" in done.stdout


def test_a_trial_that_could_read_what_it_must_not_is_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    require(availability("landlock").available, "Landlock")
    # as if the rules had no effect
    monkeypatch.setattr(probe, "_TRIAL", f"exit {probe.LEAK}")
    probe._availability.cache_clear()
    try:
        found = availability("landlock")
    finally:
        probe._availability.cache_clear()
    assert found.blocker is not None
    assert found.blocker.fact == "a trial run could read a file outside of the sandbox"
