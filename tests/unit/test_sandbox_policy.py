"""A policy is a value; what asks for a mechanism that does not exist is told what there is."""

from __future__ import annotations

import dataclasses
import resource

import pytest

from runner.errors import UsageError
from runner.sandbox.levels import choose_policy
from runner.sandbox.policy import (
    BUILT_NETWORKS,
    SandboxPolicy,
    choose,
)


def test_a_choice_is_checked_the_same_way_for_every_option() -> None:
    assert choose("credentials", "headers", known=("headers", "gateway"), built=("headers",)) == "headers"
    with pytest.raises(UsageError, match="credentials 'gateway' is not built yet"):
        choose("credentials", "gateway", known=("headers", "gateway"), built=("headers",))


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
    assert BUILT_NETWORKS == ("open",)


def test_a_memory_limit_is_one_for_each_process_and_is_named_among_the_mechanisms() -> None:
    policy = choose_policy("off", "open", memory_bytes=2**30)
    assert ("CORE", 0, 0) in policy.rlimits
    assert ("DATA", 2**30, 2**30) in policy.rlimits
    assert "rlimit data" in policy.mechanisms()
    assert "rlimit data" not in choose_policy("off", "open").mechanisms()
