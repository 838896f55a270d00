"""Attribution of log records to rollouts and groups."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from benchmax.envs.logging import _CURRENT_GROUP_RIDS, _CURRENT_ROLLOUT_ID, group_context, rollout_context


def test_the_variables_have_their_names_and_default_to_none() -> None:
    assert _CURRENT_ROLLOUT_ID.name == "benchmax_capture_rollout_id"
    assert _CURRENT_GROUP_RIDS.name == "benchmax_capture_group_rids"
    assert _CURRENT_ROLLOUT_ID.get() is None
    assert _CURRENT_GROUP_RIDS.get() is None


def test_rollout_context_sets_text_and_restores_what_was_there() -> None:
    with rollout_context(7):
        assert _CURRENT_ROLLOUT_ID.get() == "7"
        with rollout_context("inner"):
            assert _CURRENT_ROLLOUT_ID.get() == "inner"
        assert _CURRENT_ROLLOUT_ID.get() == "7"
    assert _CURRENT_ROLLOUT_ID.get() is None


def test_group_context_sets_a_tuple_of_texts() -> None:
    with group_context(iter([1, "b"])):
        assert _CURRENT_GROUP_RIDS.get() == ("1", "b")
    assert _CURRENT_GROUP_RIDS.get() is None


@pytest.mark.parametrize(
    ("make", "variable"), [(rollout_context, _CURRENT_ROLLOUT_ID), (group_context, _CURRENT_GROUP_RIDS)]
)
def test_exceptions_pass_and_the_value_is_restored(make: Any, variable: contextvars.ContextVar[Any]) -> None:
    with pytest.raises(KeyError), make("r"):
        raise KeyError
    assert variable.get() is None


@pytest.mark.parametrize(
    ("make", "variable"), [(rollout_context, _CURRENT_ROLLOUT_ID), (group_context, _CURRENT_GROUP_RIDS)]
)
def test_leaving_in_a_foreign_context_falls_back_to_none(make: Any, variable: contextvars.ContextVar[Any]) -> None:
    entered = make("r")
    contextvars.copy_context().run(entered.__enter__)
    variable.set("foreign")
    entered.__exit__(None, None, None)
    assert variable.get() is None


async def test_tasks_created_inside_inherit() -> None:
    async def current() -> str | None:
        return _CURRENT_ROLLOUT_ID.get()

    with rollout_context("r"):
        task = asyncio.create_task(current())
    assert await task == "r"
