"""What docs/rewards.md says is so: its code runs, its names exist, its numbers are the defaults."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import benchmax.rewards
from benchmax.auth import InjectedAuth, StaticBearerAuth, bind_model_auth
from benchmax.rewards import Judge
from benchmax.rewards.judge import AUTH_BACKOFF_S, MAX_IN_FLIGHT
from tests.contract.loopback import ModelServer
from tests.contract.rewards_lab import answer_by_prompt

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()
DEFAULTS = Judge("m", "http://x", InjectedAuth("judge"))


def test_the_code_runs(model_server: ModelServer) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code.replace("https://judge.example/v1", model_server.url), "docs/rewards.md", "exec"), names)
    answer_by_prompt(model_server, lambda prompt: {"score": 0})
    rollout = SimpleNamespace(rollout_id="r", messages=[{"role": "assistant", "content": "x"}])
    with bind_model_auth({"judge": StaticBearerAuth("t")}):
        rewards = asyncio.run(names["compute_reward"](rollout))
    assert rewards == {"rubric_correct": 0.0, "rubric_talks_down": 1.0}
    assert "`rubric_talks_down`" in PAGE


def test_every_function_in_the_tables_exists() -> None:
    rows = re.findall(r"^\| (`[a-z_0-9]+`.*?) \|", PAGE, flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall("`([A-Za-z_0-9]+)`", row)}
    assert len(named) > 10
    assert named <= set(benchmax.rewards.__all__)


@pytest.mark.parametrize(
    "text",
    [
        f"`timeout` ({DEFAULTS.timeout:.0f} s)",
        f"`max_retries` ({DEFAULTS.max_retries}) times more",
        f"`auth_attempts` ({DEFAULTS.auth_attempts}) times in all, after {AUTH_BACKOFF_S}, {2 * AUTH_BACKOFF_S:.0f}",
        f"At most {MAX_IN_FLIGHT} requests",
    ],
)
def test_the_numbers_are_the_defaults(text: str) -> None:
    assert text in PAGE
