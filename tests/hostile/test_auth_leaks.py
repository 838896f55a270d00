"""A bundle that says its token in every way that code does by accident: nothing of it comes back."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from runner import RecordEvent, RemoteError, isolate
from runner.provision import Cache
from tests.hostile.environments import borrowing
from tests.integration.isolation import bundled, run_one, texts
from tests.unit.broker_lab import Source

pytestmark = pytest.mark.integration

TOKEN = "sk-prod/Zq3xV9tL+m2Rk8WbYpQ7=="
USER = "service:hunter2-and-more"
HEADERS = {
    "Authorization": f"Bearer {TOKEN}",
    "Proxy-Authorization": f"Basic {base64.b64encode(USER.encode()).decode()}",
    "X-Api-Key": "plain-words-key",
    "Content-Type": "application/json",
}
SECRETS = (
    TOKEN,
    USER,
    "hunter2-and-more",
    "plain-words-key",
    base64.b64encode(USER.encode()).decode(),
    "sk-prod%2FZq3x",
)


async def test_no_secret_is_left_in_anything_that_comes_back(shared_cache: Path, tmp_path: Path) -> None:
    seen: list[Any] = []
    bundle = bundled(borrowing, "Borrowing", judge_url="https://judge.example")
    async with isolate(bundle, cache=Cache(shared_cache), on_event=seen.append) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        outcomes = await run_one(env, dataset, "leak", auth=Source(lambda: HEADERS))
        with pytest.raises(RemoteError) as raised:
            await run_one(env, dataset, "leak-and-raise", auth=Source(lambda: HEADERS))
        output = env.output()
        error = vars(raised.value)
        everything = f"{seen}{outcomes}{output}{error}{raised.value}{env.audit}"
    (record,) = [event.record for event in seen if isinstance(event, RecordEvent) and event.record.logs]
    lines = "\n".join(line.text for line in record.logs)
    assert texts(outcomes) == ["the token is [redacted]"]
    assert error["remote_message"] == "refused: the token is [redacted]"
    for secret in SECRETS:
        assert secret not in everything
    # not even a piece of it where a text was taken apart or shortened
    assert "token in two writes: [redacted]\n" in lines
    assert "token on two lines: [redacted]" in lines
    assert "characters left out" in lines
    assert not [start for start in range(len(TOKEN) - 8) if TOKEN[start : start + 8] in everything]
    assert "raw {'Authorization': 'Bearer [redacted]'" in output["stdout"]
    # and what is no secret can be read
    assert "user and password: [redacted] [redacted] application/json" in lines
