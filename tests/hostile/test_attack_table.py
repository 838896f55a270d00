"""Each attack at each level and without a runner, for a caller that is root and for one that is not: exactly the table.

What a level does not promise is asserted, too: an attack that does not work where it should would hide that it is
broken. That each works where nobody confines it is what the column `bare` is for.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import get_args

import pytest

from runner.sandbox.machine import look
from runner.sandbox.plan import Plan
from runner.sandbox.policy import Level, Network
from runner.sandbox.probe import availability, launch
from runner.sandbox.view import interpreter
from tests.confined import BASE, Caller, caller_steps, user_of
from tests.conftest import require
from tests.hostile import attacks
from tests.hostile.attack_table import OFF_STOPS, ROWS, UNLESS, Column, expected, rows
from tests.hostile.attacking import caller as program
from tests.hostile.attacking.target import SECRET

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PATIENCE_S = 100.0
COLUMNS: tuple[Column, ...] = ("bare", *get_args(Level))


@functools.cache
def outcome(column: Column, caller: Caller, network: Network = "open") -> dict[str, str]:
    """Run all attacks at a level once, and return what came of each."""
    if caller == "root":
        require(os.geteuid() == 0 and look().may_mount and look().may_become, "root")
    if column != "bare":
        found = availability(column)
        require(found.available, f"sandbox level {column} ({found.blocker})")
    with tempfile.TemporaryDirectory(prefix="benchmax-attack-") as outer:
        Path(outer).chmod(0o755)
        user = user_of(caller)
        os.chown(outer, user, user)
        done = launch(
            Plan(
                steps=tuple(caller_steps(user, [*interpreter(BASE), sys.prefix, str(ROOT)])),
                argv=(sys.executable, "-B", str(program.__file__), column, network, outer, SECRET),
            ),
            cwd=outer,
            env={"PYTHONPATH": str(ROOT), "HOME": f"{outer}/home", "PATH": "/usr/bin:/bin", "PROVIDER_KEY": SECRET},
            timeout_s=PATIENCE_S,
        )
    assert done.returncode == 0, done.stderr.decode()
    result: dict[str, str] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("caller", get_args(Caller))
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("attack", ROWS)
def test_what_comes_of_an_attack(attack: str, column: Column, caller: Caller) -> None:
    assert outcome(column, caller)[attack] in expected(attack, column, caller, look().landlock)


@pytest.mark.parametrize("caller", get_args(Caller))
def test_without_a_network_a_program_can_nothing_more(caller: Caller) -> None:
    found = outcome("namespaces", caller, "none")
    other = {
        attack: result
        for attack, result in found.items()
        if result not in expected(attack, "namespaces", caller, look().landlock)
    }
    # nobody listens in the network that it has to itself
    assert other == dict.fromkeys(("connect_to_an_abstract_socket", "connect_to_loopback"), "ECONNREFUSED")


def test_every_attack_has_its_row() -> None:
    assert sorted(ROWS) == attacks.names()


def test_every_exception_is_one_of_a_row() -> None:
    starred = {attack for attack, row in ROWS.items() if any("*" in cell for cell in row.values())}
    assert starred <= UNLESS.keys() <= starred | OFF_STOPS
    assert ROWS.keys() >= OFF_STOPS


def test_no_row_is_there_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        rows("attack off\none can\none can")


def test_each_attack_works_for_root_where_nobody_confines_it() -> None:
    # what the machine does not have is no proof, but nowhere is that the rule
    working = [attack for attack, result in outcome("bare", "root").items() if result == "can"]
    assert len(working) > 0.9 * len(ROWS)
