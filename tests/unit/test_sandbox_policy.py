"""A policy is a value; what asks for a mechanism that does not exist is told what there is."""

from __future__ import annotations

import dataclasses
import resource
from typing import Any

import pytest

from runner.errors import UsageError
from runner.sandbox.policy import (
    BUILT_LEVELS,
    BUILT_NETWORKS,
    SandboxPolicy,
    choose,
    choose_policy,
    command,
)


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_auto_and_off_are_the_level_that_is_built(sandbox: str) -> None:
    assert choose_policy(sandbox, "open") == SandboxPolicy(level="off", network="open")


@pytest.mark.parametrize(
    ("sandbox", "network", "text"),
    [
        ("landlock", "open", "sandbox 'landlock' is not built yet. This release has: auto, off."),
        ("namespaces", "open", "sandbox 'namespaces' is not built yet. This release has: auto, off."),
        ("docker", "open", "sandbox 'docker' is not known. Use one of: auto, off."),
        ("", "open", "sandbox '' is not known. Use one of: auto, off."),
        ("Off", "open", "sandbox 'Off' is not known. Use one of: auto, off."),
        ("off", "none", "network 'none' is not built yet. This release has: open."),
        ("off", "model-only", "network 'model-only' is not built yet. This release has: open."),
        ("off", "closed", "network 'closed' is not known. Use one of: open."),
    ],
)
def test_what_is_not_there_is_a_usage_error_that_lists_what_is(sandbox: str, network: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_policy(sandbox, network)
    assert str(caught.value) == text


def test_a_choice_is_checked_the_same_way_for_every_option() -> None:
    assert choose("credentials", "headers", known=("headers", "gateway"), built=("headers",)) == "headers"
    with pytest.raises(UsageError, match="credentials 'gateway' is not built yet"):
        choose("credentials", "gateway", known=("headers", "gateway"), built=("headers",))


def test_the_command_line_of_off_is_the_command_itself() -> None:
    assert command(SandboxPolicy(), ("/bin/true", "-x")) == ["/bin/true", "-x"]


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
def test_a_level_that_is_not_built_compiles_to_nothing(level: Any) -> None:
    assert level not in BUILT_LEVELS
    with pytest.raises(UsageError, match="is not built yet"):
        command(SandboxPolicy(level=level), ["/bin/true"])


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SandboxPolicy().level = "landlock"  # type: ignore[misc]  # the point
    assert hash(SandboxPolicy()) == hash(SandboxPolicy())


def test_the_mechanisms_in_force_are_named() -> None:
    assert SandboxPolicy().mechanisms() == (
        "supervisor",
        "own session",
        "environment from empty",
        "closed descriptors",
        "rlimit core",
        "no new privileges",
    )
    assert "no new privileges" not in SandboxPolicy(no_new_privileges=False).mechanisms()
    assert not [name for name in SandboxPolicy(rlimits=()).mechanisms() if name.startswith("rlimit")]


def test_no_core_is_dumped_by_default() -> None:
    assert SandboxPolicy().rlimits == (("CORE", 0, 0),)
    assert hasattr(resource, "RLIMIT_CORE")


def test_what_is_built_is_known() -> None:
    assert BUILT_LEVELS == ("off",)
    assert BUILT_NETWORKS == ("open",)


def test_a_memory_limit_is_one_for_each_process_and_is_named_among_the_mechanisms() -> None:
    policy = choose_policy("off", "open", memory_bytes=2**30)
    assert policy.rlimits == (("CORE", 0, 0), ("DATA", 2**30, 2**30))
    assert "rlimit data" in policy.mechanisms()
    assert "rlimit data" not in choose_policy("off", "open").mechanisms()
