"""A policy is a value; what asks for a mechanism that does not exist is told what there is."""

from __future__ import annotations

import dataclasses
import resource

import pytest

from runner.errors import UsageError
from runner.limits import Limits
from runner.sandbox import levels
from runner.sandbox.cgroups import ABSENT, NO_GROUPS, Groups, Place
from runner.sandbox.levels import choose_policy, what_is_not_limited
from runner.sandbox.overlay import Overlay
from runner.sandbox.policy import (
    NETWORKS,
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
    assert SandboxPolicy().rlimits == (("CORE", 1, 1),)
    assert hasattr(resource, "RLIMIT_CORE")


def test_what_is_built_is_known() -> None:
    assert NETWORKS == ("open", "model-only", "none")


def test_a_memory_limit_is_one_for_each_process_and_is_named_among_the_mechanisms() -> None:
    policy = choose_policy("off", "open", limits=Limits(memory_bytes=2**30))
    assert ("CORE", 1, 1) in policy.rlimits
    assert ("DATA", 2**30, 2**30) in policy.rlimits
    assert "rlimit data" in policy.mechanisms()
    assert "rlimit data" not in choose_policy("off", "open").mechanisms()


def test_what_a_worker_alone_writes_is_watched() -> None:
    policy = SandboxPolicy(private="/w/private", data="/w/data", shared=("/cache",), disk_bytes=1)
    assert policy.watched == ("/w/private", "/w/data")
    assert "disk watch" in policy.mechanisms()
    overlay = Overlay(lower="/data", written="/w/written", target="/w/data/overlay/data")
    assert dataclasses.replace(policy, overlay=overlay).watched == ("/w/private", "/w/data", "/w/written/upper")
    assert dataclasses.replace(policy, disk_bytes=None).watched == ()


def test_limits_on_a_whole_tree_are_in_a_policy_as_far_as_there_are_control_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(memory_bytes=2**20, disk_bytes=2**30, processes=50)
    monkeypatch.setattr(levels, "usable_groups", lambda _: NO_GROUPS)
    alone = choose_policy("off", "open", limits=limits)
    assert (alone.groups, alone.disk_bytes) == ((), 2**30)
    assert ("NPROC", 50, 50) in alone.rlimits
    groups = Groups(places=(Place(controller="pids", version=2, folder="/g"),), missing=(("memory", ABSENT),))
    monkeypatch.setattr(levels, "usable_groups", lambda _: groups)
    grouped = choose_policy("off", "open", limits=limits)
    assert [group.settings for group in grouped.groups] == [(("pids.max", "50", True),)]
    # so that it is the group, which can be asked, that is met
    assert ("NPROC", 66, 66) in grouped.rlimits
    assert "control group pids" in grouped.mechanisms()
    assert what_is_not_limited("off", limits)[0] == (
        "memory: limited for each process by itself, without shared memory, since there is no such control group here"
    )
