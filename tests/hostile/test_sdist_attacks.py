"""What the build of a package can do to the machine that installs it, attack by attack and level by level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, get_args

import pytest

from runner.sandbox.policy import Level
from tests.confined import Caller
from tests.hostile.sdist_lab import ATTACKS, said

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

EVERYWHERE: Final = frozenset({"off", "landlock", "namespaces"})
ONLY_OFF: Final = frozenset({"off"})

CAN: Final[Mapping[str, frozenset[str]]] = {
    "ask_the_way_out_for_another_host": frozenset({"off", "landlock"}),
    "change_another_venv": ONLY_OFF,
    "change_the_installers_cache": ONLY_OFF,
    "connect_to_loopback": frozenset({"off", "landlock"}),
    # it begins, and ends with the build
    "leave_a_process": EVERYWHERE,
    "read_another_venv": ONLY_OFF,
    "read_ssh_keys": ONLY_OFF,
    "read_the_callers_environment": ONLY_OFF,
    "read_the_callers_files": ONLY_OFF,
}
"""Attack → levels at which it works."""

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
CALLERS: Final[tuple[Caller, ...]] = get_args(Caller)


def test_every_attack_is_in_the_table() -> None:
    assert {path.stem for path in ATTACKS.glob("[a-z]*.py")} == set(CAN)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("attack", sorted(CAN))
def test_a_build_can(attack: str, level: Level, caller: Caller) -> None:
    outcome = said(level, caller)["attacks"][attack]
    assert (outcome == "can") == (level in CAN[attack]), outcome


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("level", LEVELS)
def test_what_other_bundles_install_from_is_changed_without_a_sandbox_only(level: Level, caller: Caller) -> None:
    assert bool(said(level, caller)["changed"]) == (level == "off"), said(level, caller)["changed"]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("level", LEVELS)
def test_no_process_of_a_build_is_left(level: Level, caller: Caller) -> None:
    assert said(level, caller)["left"] == 0


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
def test_with_pip_a_build_can_do_no_more(level: Level) -> None:
    found = said(level, "ordinary", "pip")
    assert {attack for attack, outcome in found["attacks"].items() if outcome == "can"} == {
        attack for attack, levels in CAN.items() if level in levels
    }
    assert not found["changed"]
    assert found["left"] == 0
