"""Corpora that answer from a list, environments on them, and facts recorded from release 0.2.5."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmax.auth import StaticBearerAuth
from benchmax.envs import BaseRollout
from benchmax.rag import RagEnv, SearchResult
from tests.contract.loopback import ModelServer

RECORDED: Final[Any] = json.loads((Path(__file__).parents[1] / "fixtures" / "rag" / "recorded.json").read_text())
"""What the published release gave for the same inputs, driven from outside."""

NOWHERE: Final = "http://127.0.0.1:9/v1"
"""The discard port: a judge that is never asked."""


class Corpus:
    """Finds the same results for every query, and remembers what it was asked."""

    def __init__(self, results: Sequence[Mapping[str, Any]] = (), modes: Sequence[str] = ("lexical",)) -> None:
        self.results: Any = list(results)
        self.modes = list(modes)
        self.asked: list[tuple[Any, Any, Any]] = []

    @property
    def available_modes(self) -> list[str]:
        return self.modes

    async def search(self, query: str, mode: str = "auto", top_k: int = 10) -> list[SearchResult]:
        self.asked.append((query, mode, top_k))
        found: list[SearchResult] = self.results
        return found


def found(source: str, content: str = "text", **fields: Any) -> dict[str, Any]:
    return {"content": content, "source": source, "metadata": {}, "score": 1.0, **fields}


def env_at(server: ModelServer | None = None, corpus: Corpus | None = None, **options: Any) -> RagEnv:
    return RagEnv(
        corpus or Corpus(),
        judge_base_url=server.url if server else NOWHERE,
        judge_model="judge",
        **{"judge_auth": StaticBearerAuth("j"), **options},
    )


def tool_message(content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": content}


def chunks(*sources: Any) -> list[dict[str, Any]]:
    return [{"metadata": {"file": source}} for source in sources]


def rollout(messages: Any, **example_args: Any) -> BaseRollout:
    return BaseRollout(
        rollout_id="r", termination_reason="finished", messages=list(messages), example_args=example_args
    )


def answered(answer: str, *retrieved: str, references: Any = ("a.md",), **example_args: Any) -> BaseRollout:
    """A finished rollout that retrieved these sources, each in a message of its own, and then answered."""
    messages = [*(tool_message(f"1. — [source: {source}]") for source in retrieved)]
    fields = {"question": "q?", "ground_truth": "g", "reference_chunks": chunks(*references), **example_args}
    return rollout([*messages, {"role": "assistant", "content": f"<answer>{answer}</answer>"}], **fields)
