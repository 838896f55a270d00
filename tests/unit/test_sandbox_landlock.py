"""File rules compiled for each version of the kernel's interface."""

from __future__ import annotations

import pytest

from runner.errors import SandboxUnavailableError
from runner.sandbox.landlock import FILE_RIGHTS, READ, WRITE, Right, Rule, Scope, handled, ruleset, scoped

RULES = (Rule("/usr", READ), Rule("/own", WRITE), Rule("/etc/hosts", READ, needed=False))


@pytest.mark.parametrize(
    ("version", "added"),
    [(2, Right.REFER), (3, Right.TRUNCATE), (4, Right(0)), (5, Right.IOCTL_DEV), (6, Right(0)), (7, Right(0))],
)
def test_each_version_handles_what_it_added(version: int, added: Right) -> None:
    assert handled(version) == handled(version - 1) | added
    assert added not in handled(version - 1) or not added


def test_the_first_version_has_the_thirteen_rights_it_began_with() -> None:
    assert handled(1) == Right.EXECUTE | Right(0x1FFE)


def test_a_version_of_the_future_is_used_as_the_newest_that_is_known() -> None:
    assert ruleset(99, RULES) == ruleset(7, RULES)


@pytest.mark.parametrize(("version", "scope"), [(3, 0), (5, 0), (6, 3), (7, 3)])
def test_signals_and_abstract_sockets_stay_inside_where_the_kernel_can(version: int, scope: int) -> None:
    assert scoped(version) == Scope(scope) == ruleset(version, RULES).scoped


@pytest.mark.parametrize("version", [3, 4, 5, 6, 7])
def test_no_rule_grants_what_is_not_handled(version: int) -> None:
    compiled = ruleset(version, RULES)
    assert all(rule.rights in compiled.handled for rule in compiled.rules)
    assert [rule.path for rule in compiled.rules] == ["/usr", "/own", "/etc/hosts"]


def test_reading_grants_no_change() -> None:
    assert READ == Right.EXECUTE | Right.READ_FILE | Right.READ_DIR


def test_nobody_may_make_device_nodes_or_talk_to_devices() -> None:
    assert not WRITE & (Right.MAKE_CHAR | Right.MAKE_BLOCK | Right.IOCTL_DEV)


def test_what_is_said_of_a_file_is_only_what_files_have() -> None:
    assert not FILE_RIGHTS & (Right.READ_DIR | Right.REMOVE_DIR | Right.MAKE_REG | Right.REFER)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (0, "sandbox landlock: this kernel offers no Landlock; version 3 (Linux 6.2) is needed."),
        (1, "this kernel offers version 1 of Landlock, which cannot protect files from being emptied"),
        (2, "this kernel offers version 2 of Landlock, which cannot protect files from being emptied"),
    ],
)
def test_a_kernel_that_cannot_keep_the_promise_is_refused(version: int, text: str) -> None:
    with pytest.raises(SandboxUnavailableError) as caught:
        ruleset(version, RULES)
    assert text in str(caught.value)
    assert "Use a newer kernel" in caught.value.hint


def test_everything_in_force_is_named() -> None:
    names = ruleset(7, RULES).names()
    assert len(names) == 18
    assert {"landlock truncate", "landlock ioctl dev", "landlock scope signal"} <= set(names)
    assert "landlock scope abstract unix socket" not in ruleset(5, RULES).names()
