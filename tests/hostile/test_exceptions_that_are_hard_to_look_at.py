"""Exceptions that are huge, silent, circular or deadly to look at: one bounded text each, and life goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import RemoteError, isolate
from runner.limits import MAX_TEXT_CHARS, MAX_TRACEBACK_CHARS
from runner.provision import Cache
from tests.hostile.environments import raising
from tests.hostile.environments.raising import KINDS
from tests.integration.isolation import bundled, run_one

pytestmark = pytest.mark.integration

TYPES = {
    "huge": "ValueError",
    "two arguments": "tests.hostile.environments.raising.TwoArguments",
    "no text": "tests.hostile.environments.raising.Unspeakable",
    "deadly text": "tests.hostile.environments.raising.Deadly",
    "no name": "Exception",
    "cyclic": "tests.hostile.environments.raising.Cyclic",
    "deep group": "ExceptionGroup",
    "long chain": "ValueError",
    "many notes": "ValueError",
    "odd text": "ValueError",
    "no exception of the program": "GeneratorExit",
}
TEXTS = {
    "huge": "xxx… 49983616 characters left out …xxx",
    "no text": "<text not available: its __str__ raised RuntimeError>",
    "deadly text": "<text not available: its __str__ raised SystemExit>",
    "deep group": "level 1999 (2 sub-exceptions)",
    "long chain": "after 4999",
    "odd text": "\\ud800 \x1b[2J\x9b31m \u202e \x00 the reason",
}


def check(error: RemoteError, kind: str) -> None:
    assert error.remote_type == TYPES[kind]
    assert TEXTS.get(kind, "the reason").strip("x") in error.remote_message
    assert len(error.remote_message) <= MAX_TEXT_CHARS
    assert len(error.remote_traceback) <= MAX_TRACEBACK_CHARS
    # it may be shown as it is by whatever prints it
    shown = f"{error}{error.detail}".replace("\n", "").replace("\t", "")
    assert shown.isprintable()


@pytest.mark.parametrize("place", ["rollout", "dataset"])
async def test_one_that_is_raised_again_here_is_bounded_text_and_the_worker_goes_on(
    shared_cache: Path, tmp_path: Path, place: str
) -> None:
    async with isolate(bundled(raising, "Raising", place=place), cache=Cache(shared_cache)) as env:
        if place == "dataset":
            for kind in KINDS:
                with pytest.raises(RemoteError) as caught:
                    await env.create_dataset("eval", tmp_path)
                check(caught.value, kind)
        else:
            dataset = await env.create_dataset("eval", tmp_path)
            for kind in KINDS:
                with pytest.raises(RemoteError) as caught:
                    await run_one(env, dataset, kind)
                check(caught.value, kind)
            assert [outcome.rewards for outcome in (await run_one(env, dataset, "nothing")).values()] == [{"x": 1.0}]
        assert env.deaths == ()


@pytest.mark.parametrize("place", ["failure", "scoring"])
async def test_one_that_is_an_outcome_is_bounded_text_without_rewards(
    shared_cache: Path, tmp_path: Path, place: str
) -> None:
    async with isolate(bundled(raising, "Raising", place=place), cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        for kind in KINDS:
            try:
                (outcome,) = (await run_one(env, dataset, kind)).values()
            except RemoteError as error:
                # what raises while its text is asked for, or is no Exception, raises out of run_group in process too
                assert place == "scoring"
                assert kind in ("no text", "deadly text", "no name", "no exception of the program")
                check(error, kind) if kind == "no exception of the program" else None
            else:
                assert outcome.termination_reason == ("tool_error" if place == "failure" else "group_reward_error")
                assert outcome.rewards == {}
                assert outcome.error
                assert len(outcome.error) <= MAX_TEXT_CHARS
        assert [outcome.rewards for outcome in (await run_one(env, dataset, "nothing")).values()] == [{"x": 1.0}]


@pytest.mark.parametrize("kind", ["huge", "deadly text", "no name", "deep group", "odd text"])
async def test_one_of_a_constructor_or_of_closing_is_bounded_text(shared_cache: Path, kind: str) -> None:
    with pytest.raises(RemoteError, match="constructing the environment raised") as caught:
        async with isolate(bundled(raising, "Raising", place="constructor", kind=kind), cache=Cache(shared_cache)):
            pass
    check(caught.value, kind)
    with pytest.raises(RemoteError, match="aclose raised") as caught:
        async with isolate(bundled(raising, "Raising", place="close", kind=kind), cache=Cache(shared_cache)):
            pass
    check(caught.value, kind)
