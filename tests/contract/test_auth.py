"""Credential sources and the binding through which a runtime injects them."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

import benchmax.auth
import benchmax.envs
from benchmax.auth import (
    InjectedAuth,
    ModelAuth,
    ModelRequestContext,
    StaticBearerAuth,
    bind_model_auth,
    bound_model_auth,
)

CONTEXT = ModelRequestContext("http://model.example/v1", "m", "r1")


class Recorder:
    """A credential source that keeps what it was asked."""

    def __init__(self, token: str = "t") -> None:
        self.token = token
        self.contexts: list[ModelRequestContext] = []

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        self.contexts.append(context)
        return {"Authorization": f"Bearer {self.token}"}


async def token_of(name: str) -> str:
    return (await InjectedAuth(name).headers_for_request(CONTEXT))["Authorization"]


def test_the_public_names_are_these_and_sorted() -> None:
    assert benchmax.auth.__all__ == [
        "InjectedAuth",
        "ModelAuth",
        "ModelRequestContext",
        "RequestModelAuth",
        "StaticBearerAuth",
        "bind_model_auth",
        "create_async_openai_client",
        "create_openai_client",
    ]
    assert set(benchmax.auth.__all__) <= set(dir(benchmax.auth))


@pytest.mark.parametrize("name", ["ModelAuth", "StaticBearerAuth", "InjectedAuth", "bind_model_auth"])
def test_four_names_are_importable_from_envs_too(name: str) -> None:
    assert getattr(benchmax.envs, name) is getattr(benchmax.auth, name)


@pytest.mark.parametrize(
    "name", ["ModelRequestContext", "ModelAuth", "StaticBearerAuth", "InjectedAuth", "RequestModelAuth"]
)
def test_classes_name_this_module_as_theirs(name: str) -> None:
    assert getattr(benchmax.auth, name).__module__ == "benchmax.auth"
    assert getattr(benchmax.auth, name).__qualname__ == name


def test_an_unknown_name_of_the_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = benchmax.auth.nonsense


def test_request_context_is_frozen_slotted_and_unvalidated() -> None:
    context = ModelRequestContext("", "", "")
    assert context == ModelRequestContext(base_url="", model="", rollout_id="")
    assert not hasattr(context, "__dict__")
    with pytest.raises(AttributeError):
        context.model = "x"  # type: ignore[misc]
    state = pickle.loads(pickle.dumps(CONTEXT))
    assert state == CONTEXT


def test_any_object_with_the_method_is_a_model_auth() -> None:
    assert isinstance(Recorder(), ModelAuth)
    assert not isinstance(object(), ModelAuth)


@pytest.mark.parametrize("token", ["", None, 3, b"x"])
def test_static_token_must_be_a_non_empty_string(token: Any) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        StaticBearerAuth(token)


async def test_static_token_may_be_whitespace_and_is_sent_as_it_stands() -> None:
    assert await StaticBearerAuth(" ").headers_for_request(CONTEXT) == {"Authorization": "Bearer  "}


async def test_static_auth_ignores_the_context() -> None:
    context: Any = None
    assert await StaticBearerAuth("t").headers_for_request(context) == {"Authorization": "Bearer t"}


def test_static_auth_never_shows_its_token() -> None:
    assert repr(StaticBearerAuth("secret")) == "StaticBearerAuth()"


def test_sources_compare_and_hash_by_field() -> None:
    assert StaticBearerAuth("t") == StaticBearerAuth("t") != StaticBearerAuth("u")
    assert len({StaticBearerAuth("t"), StaticBearerAuth("t"), InjectedAuth("a"), InjectedAuth("a")}) == 2


@pytest.mark.parametrize(("auth", "state"), [(StaticBearerAuth("t"), ["t"]), (InjectedAuth("judge"), ["judge"])])
def test_sources_pickle_as_the_list_of_their_fields(auth: Any, state: list[str]) -> None:
    assert auth.__reduce_ex__(4)[2] == state
    assert pickle.loads(pickle.dumps(auth)) == auth


@pytest.mark.parametrize("name", ["", " \t", None, 3])
def test_injected_name_must_have_a_visible_character(name: Any) -> None:
    with pytest.raises(ValueError, match="non-empty"):
        InjectedAuth(name)


async def test_injected_name_is_not_stripped() -> None:
    assert InjectedAuth(" judge ").name == " judge "
    with (
        bind_model_auth({"judge": Recorder()}),
        pytest.raises(RuntimeError, match=r"No runtime model-auth provider.*' judge '"),
    ):
        await token_of(" judge ")


async def test_injected_auth_passes_the_same_context_on_and_asks_every_time() -> None:
    source = Recorder()
    with bind_model_auth({"judge": source}):
        await token_of("judge")
        await token_of("judge")
    assert [context is CONTEXT for context in source.contexts] == [True, True]


async def test_injected_auth_without_a_binding_names_itself() -> None:
    with pytest.raises(RuntimeError, match=r"No runtime model-auth provider.*judge"):
        await token_of("judge")


async def test_injected_auth_missing_from_the_binding_names_itself() -> None:
    with bind_model_auth({"other": Recorder()}), pytest.raises(RuntimeError, match=r"No runtime.*'judge'.*'other'"):
        await token_of("judge")


@pytest.mark.parametrize("target", ["judge", "other"])
async def test_injected_auth_does_not_resolve_to_another(target: str) -> None:
    with (
        bind_model_auth({"judge": InjectedAuth(target), "other": Recorder()}),
        pytest.raises(RuntimeError, match="cannot reference another InjectedAuth"),
    ):
        await token_of("judge")


async def test_an_exception_of_the_provider_propagates_unchanged() -> None:
    failure = LookupError("vault is closed")

    class Closed:
        async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
            raise failure

    with bind_model_auth({"judge": Closed()}), pytest.raises(LookupError) as caught:
        await token_of("judge")
    assert caught.value is failure


async def test_binding_copies_the_mapping() -> None:
    providers: dict[str, ModelAuth] = {"judge": StaticBearerAuth("before")}
    with bind_model_auth(providers):
        providers["judge"] = StaticBearerAuth("after")
        assert await token_of("judge") == "Bearer before"


@pytest.mark.parametrize("name", ["", "  ", None, 7])
def test_binding_refuses_blank_names_before_anything_is_bound(name: Any) -> None:
    with pytest.raises(ValueError, match="non-empty"), bind_model_auth({"ok": Recorder(), name: Recorder()}):
        pytest.fail("entered")
    assert bound_model_auth() is None


def test_binding_refuses_what_is_no_model_auth_before_anything_is_bound() -> None:
    wrong: Any = {"judge": object()}
    with pytest.raises(TypeError, match="ModelAuth"), bind_model_auth(wrong):
        pytest.fail("entered")
    assert bound_model_auth() is None


async def test_an_inner_binding_replaces_the_outer_one_whole() -> None:
    with bind_model_auth({"a": StaticBearerAuth("outer"), "b": StaticBearerAuth("outer")}):
        with bind_model_auth({"b": StaticBearerAuth("inner")}):
            assert await token_of("b") == "Bearer inner"
            with pytest.raises(RuntimeError, match="No runtime model-auth provider"):
                await token_of("a")
        assert await token_of("a") == "Bearer outer"


def test_the_previous_binding_is_restored_when_the_block_raises() -> None:
    with bind_model_auth({"a": Recorder()}):
        before = bound_model_auth()
        with pytest.raises(KeyError), bind_model_auth({}):
            assert bound_model_auth() == {}
            raise KeyError
        assert bound_model_auth() is before
    assert bound_model_auth() is None


async def test_a_task_keeps_the_binding_it_was_created_under_after_the_block_ended() -> None:
    left = asyncio.Event()

    async def later() -> str:
        await left.wait()
        return await token_of("judge")

    with bind_model_auth({"judge": StaticBearerAuth("t")}):
        task = asyncio.create_task(later())
    left.set()
    assert await task == "Bearer t"


async def test_a_thread_with_a_copied_context_inherits_the_binding() -> None:
    with bind_model_auth({"judge": StaticBearerAuth("t")}):
        assert await asyncio.to_thread(lambda: asyncio.run(token_of("judge"))) == "Bearer t"
        copied = contextvars.copy_context()
    assert copied.run(bound_model_auth) is not None


async def test_concurrent_tasks_do_not_see_each_others_bindings() -> None:
    both_bound = asyncio.Barrier(2)

    async def bound_to(token: str) -> str:
        with bind_model_auth({"judge": StaticBearerAuth(token)}):
            await both_bound.wait()
            return await token_of("judge")

    assert [*await asyncio.gather(bound_to("one"), bound_to("two"))] == ["Bearer one", "Bearer two"]
