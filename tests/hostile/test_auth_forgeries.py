"""A bundle that speaks the protocol itself gets what its calls were meant to get, and nothing more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner import Binding, isolate
from runner.provision import Cache
from tests.hostile.environments import borrowing
from tests.integration.isolation import bundled, run_one, texts
from tests.unit.broker_lab import Source

pytestmark = pytest.mark.integration

JUDGE = "https://judge.example/v1"


async def test_whatever_it_forges_only_what_was_meant_is_answered(shared_cache: Path, tmp_path: Path) -> None:
    own, judge = Source(), Source(lambda: {"X-Api-Key": "judge-key"})
    bundle = bundled(borrowing, "Borrowing", judge_url=JUDGE)
    auth: dict[str, Any] = {"judge": Binding(judge, urls=[JUDGE])}
    async with isolate(bundle, auth=auth, cache=Cache(shared_cache)) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        (text,) = texts(await run_one(env, dataset, "forge", auth=own))
        audit = env.audit
    found = json.loads(text or "")
    answered = {name for name, came in found.items() if came.startswith("answered")}
    assert answered == {"own", "own in another's name", "the judge's"}
    assert found["own in another's name"] == "answered ['Authorization']"
    # the source is told whose it is, whatever the bundle says
    assert [context.rollout_id for context in own.asked] == ["forge-0", "forge-0"]
    assert [context.base_url for context in judge.asked] == [JUDGE]
    for name, words in {
        "elsewhere": "not https://evil.example/v1",
        "another model": "is for model 'm', not 'a-dearer-model'",
        "another's": "no rollout 'somebody-else' is in flight",
        "nobody's": "no rollout None is in flight",
        "another call": "outside of any call in flight",
        "an earlier call": "outside of any call in flight",
        "the judge's, elsewhere": "urls=['https://evil.example/v1']",
        "the judge's, behind a user": "it names a user before the host",
        "the judge's, above": "its path has segments of dots",
        "the judge's, in the rollout's name": "not https://judge.example/v1",
        "a stranger's": "No runtime model-auth provider",
    }.items():
        assert words in found[name], name
        assert found[name].startswith("HeadersRefusedError: ")
    assert [entry.answered for entry in audit].count(True) == len(answered)
    assert len(audit) == len(found)
