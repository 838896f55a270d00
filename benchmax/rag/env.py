"""An environment in which a model searches a corpus to answer a question, and the measures that score it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from benchmax.auth import InjectedAuth, ModelAuth
from benchmax.envs import (
    BaseEnv,
    BaseRollout,
    DatasetSplit,
    Example,
    JsonlDataset,
    JsonRow,
    Messages,
    RewardMap,
    Tool,
    canonical_example_id,
)
from benchmax.rag import prompt
from benchmax.rag.rubrics import CONCISENESS_RUBRIC, CORRECTNESS_RUBRIC
from benchmax.rag.search import SearchClient
from benchmax.rag.search_tool import (
    MAX_TOOL_OUTPUT_CHARS,
    TOOL_OUTPUT_TRUNCATION_SUFFIX,
    default_mode_of,
    result_text,
    tool_schema,
)
from benchmax.rag.sources import (
    RagSourceScores,
    canonicalize_source_id,
    canonicalize_source_id_loose,
    extract_answer_block,
    extract_reference_ids,
    extract_source_ids,
    score_citation_grounding,
    score_citations,
    score_rag_sources,
    score_retrieval_sources,
)
from benchmax.rewards import (
    Judge,
    Rubric,
    clip01,
    evaluate_single_rubric,
    extract_completion_text,
    search_within_budget,
)
from benchmax.rewards.concurrency import all_of

__all__ = [
    "ANSWER_LENGTH_CAP",
    "CONCISENESS_RUBRIC",
    "CORRECTNESS_RUBRIC",
    "MAX_TOOL_OUTPUT_CHARS",
    "SEARCH_EFFICIENCY_DECAY_RATE",
    "TOOL_OUTPUT_TRUNCATION_SUFFIX",
    "RagEnv",
    "RagSourceScores",
    "canonicalize_source_id",
    "canonicalize_source_id_loose",
    "extract_answer_block",
    "extract_reference_ids",
    "extract_source_ids",
    "judge_answer_quality",
    "parse_citations",
    "score_citation_grounding",
    "score_citations",
    "score_rag_sources",
    "score_retrieval_sources",
    "score_search_efficiency",
]

logger = logging.getLogger(__name__)

ANSWER_LENGTH_CAP: Final = 600
"""Characters of an answer that leave nothing of the reward for brevity; citations count."""

SEARCH_EFFICIENCY_DECAY_RATE: Final = 0.2
"""How fast each search beyond the free ones lowers `score_search_efficiency`, as the exponent of e."""

_FREE_SEARCHES: Final = 2
"""Searches that cost nothing on top of one per reference chunk."""

_extract_answer_block = extract_answer_block
parse_citations = extract_source_ids

for _defined_elsewhere in (
    RagSourceScores,
    canonicalize_source_id,
    canonicalize_source_id_loose,
    extract_answer_block,
    extract_reference_ids,
    extract_source_ids,
    score_citation_grounding,
    score_citations,
    score_rag_sources,
    score_retrieval_sources,
):
    # the module by which a pickle names them, so that a bundle loads on every release that has this path
    _defined_elsewhere.__module__ = __name__


class RagEnv(BaseEnv):
    """A model answers questions by searching a corpus, and a judge decides whether its answers are right.

    The model has one tool, `search`, and is to end with `<answer>...</answer>` that cites its sources as
    `[Source: <id>]`. Rewards, each times its weight:

    - `answer_correctness`: whether the judge finds the answer right, 0 or 1;
    - `retrieval_hit`: share of the reference sources that the searches found;
    - `citation_recall`: share of the reference sources that the answer cites, for a right answer;
    - `citation_grounding`: share of the cited sources that the searches found, for a right answer;
    - `answer_length`: 1 for an empty answer down to 0 at `ANSWER_LENGTH_CAP` characters, for a right answer.

    All are 0, and the judge is not asked, where there is no answer or the searches found no reference source. A judge
    that fails ends its rollout with `judge_error`, without a reward; its siblings keep theirs.

    The data are `<split>.jsonl` files with one object per line: `question` (text), `answer` (reference answer) and
    `reference_chunks` (a list of `{"metadata": {"file": <id>}}`, the passages that hold the answer).

    Override `_canonicalize_id` where sources have ids of another kind than file names.

    Args:
        search: The corpus.
        judge_base_url: Base URL of the judge's OpenAI-compatible API.
        judge_model: Name of the judge's model.
        judge_auth: Credential source for the judge.
        judge_timeout: Seconds that one attempt to reach the judge may take; `None` waits for ever.
        w_correctness: Weight of `answer_correctness`.
        w_retrieval_hit: Weight of `retrieval_hit`.
        w_citation_recall: Weight of `citation_recall`.
        w_citation_grounding: Weight of `citation_grounding`.
        w_length: Weight of `answer_length`.
        max_search_calls: Searches per rollout, at least 1; asking for more ends it with `tool_budget_exceeded`.
        max_turns: Model turns per rollout; default one more than searches.
        system_prompt: What the model is told first, `""` for nothing; default the class attribute. See
            `render_system_prompt`.

    Raises:
        ValueError: the judge's URL or model is missing, or a limit or the time-out is out of range.
        TypeError: `judge_auth` is not a `ModelAuth`.
    """

    PRIMARY_REWARD_KEY: ClassVar[str] = "answer_correctness"
    """The reward to look at first."""

    SYSTEM_PROMPT_TEMPLATE: ClassVar[str] = prompt.SYSTEM_PROMPT_TEMPLATE
    """What `render_system_prompt` fills in: `{corpus_description}` and `{max_search_calls}`."""

    system_prompt: str | None = None
    """What the model is told first, unless the constructor says otherwise."""

    def __init__(
        self,
        search: SearchClient,
        *,
        judge_base_url: str,
        judge_model: str,
        judge_auth: ModelAuth = InjectedAuth("judge"),  # noqa: B008 - immutable
        judge_timeout: float | None = 30.0,
        w_correctness: float = 1.0,
        w_retrieval_hit: float = 0.3,
        w_citation_recall: float = 0.3,
        w_citation_grounding: float = 0.2,
        w_length: float = 0.2,
        max_search_calls: int = 10,
        max_turns: int | None = None,
        system_prompt: str | None = None,
    ) -> None:
        if not judge_base_url or not judge_model:
            raise ValueError(
                f"{type(self).__name__} requires judge_base_url and judge_model, the model that decides whether "
                f"answers are right; got {judge_base_url!r} and {judge_model!r}."
            )
        calls: object = max_search_calls
        if isinstance(calls, bool) or not isinstance(calls, int) or calls < 1:
            raise ValueError(f"{type(self).__name__}.max_search_calls must be a positive integer, got {calls!r}.")
        super().__init__(
            max_turns=max_search_calls + 1 if max_turns is None else max_turns, max_tool_calls=max_search_calls
        )
        self._judge = Judge(judge_model, judge_base_url, judge_auth, timeout=judge_timeout)
        self._search = search
        self._system_prompt = self.system_prompt if system_prompt is None else system_prompt
        self._max_search_calls = max_search_calls
        self._w_correctness = w_correctness
        self._w_retrieval_hit = w_retrieval_hit
        self._w_citation_recall = w_citation_recall
        self._w_citation_grounding = w_citation_grounding
        self._w_length = w_length
        modes = search.available_modes
        self._default_mode = default_mode_of(modes)
        self._tools: dict[str, tuple[Tool, Callable[..., Coroutine[Any, Any, str]]]] = {
            "search": (tool_schema(modes, self._default_mode), self._search_tool)
        }

    @classmethod
    def render_system_prompt(cls, *, corpus_description: str, max_search_calls: int) -> str:
        """Return the class's `SYSTEM_PROMPT_TEMPLATE` with its two placeholders filled in; other braces stay.

        Args:
            corpus_description: What there is to search, in a sentence or two.
            max_search_calls: Searches per rollout, the same number that the constructor gets.
        """
        return prompt.with_values(
            cls.SYSTEM_PROMPT_TEMPLATE, corpus_description=corpus_description, max_search_calls=max_search_calls
        )

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> JsonlDataset[JsonRow]:
        """Read `<base_dir>/<split>.jsonl`; see `JsonlDataset` for what it raises."""
        return JsonlDataset(
            Path(base_dir) / f"{split}.jsonl", row_to_example=self._example_from_row, max_examples=max_examples
        )

    def _example_from_row(self, row: JsonRow) -> Example[JsonRow]:
        question = row.get("question", "")
        if not isinstance(question, str):
            raise TypeError(f"A row's question must be a string, got {type(question).__name__}.")
        messages: Messages = [{"role": "user", "content": question}]
        if self._system_prompt:
            messages.insert(0, {"role": "system", "content": self._system_prompt})
        payload = {
            "prompt_messages": messages,
            "question": question,
            "ground_truth": row.get("answer"),
            "reference_chunks": row.get("reference_chunks", []),
        }
        return Example(canonical_example_id(payload), payload)

    async def list_tools(self) -> list[Tool]:
        """Return the search tool."""
        return [schema for schema, _ in self._tools.values()]

    # `self` is positional-only in both: models make arguments up, and it is a name like any other
    async def run_tool(self, /, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        """Search, and return the results as text.

        Raises:
            TypeError: the model gave no `query`.
        """
        if tool_name not in self._tools:
            return f"Error: Unknown tool {tool_name!r}; there is only {', '.join(self._tools)}."
        return await self._tools[tool_name][1](**tool_args)

    async def _search_tool(self, /, query: str, mode: str | None = None, limit: int = 10, **ignored: Any) -> str:
        if not query:
            return "Error: query is empty. Say in it what to look for."
        results = await self._search.search(query=query, mode=mode or self._default_mode, top_k=limit)
        return result_text(results)

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap:
        """Score one rollout; the class says how.

        Raises:
            JudgeError: the judge gave no usable verdict.
            TypeError: the example has no list of reference chunks.
        """
        answer = extract_answer_block(extract_completion_text(rollout.messages))
        if not answer:
            logger.info("[RagEnv] rollout_id=%s no answer", rollout.rollout_id)
            return _weighted(self, 0.0, 0.0, 0.0, 0.0, 0.0)
        example = rollout.example_args
        sources = self._score_rag_sources(answer, _tool_text(rollout.messages), example.get("reference_chunks", []))
        if sources["retrieval_hit"] <= 0:
            logger.info("[RagEnv] rollout_id=%s no reference source was retrieved", rollout.rollout_id)
            return _weighted(self, 0.0, 0.0, 0.0, 0.0, 0.0)
        evaluation = await evaluate_single_rubric(
            CORRECTNESS_RUBRIC,
            question=str(example.get("question") or example.get("prompt") or ""),
            ground_truth=str(example.get("ground_truth") or ""),
            response=answer,
            judge=self._judge,
        )
        correctness = clip01(evaluation.score)
        brevity = clip01(1 - len(answer) / ANSWER_LENGTH_CAP)
        logger.info(
            "[RagEnv] rollout_id=%s correctness=%s sources=%s answer_chars=%d",
            rollout.rollout_id,
            correctness,
            sources,
            len(answer),
        )
        return _weighted(
            self,
            correctness,
            sources["retrieval_hit"],
            sources["citation_recall"] * correctness,
            sources["citation_grounding"] * correctness,
            brevity * correctness,
        )

    # The methods below score with the environment's own form of ids. Subclasses call them.

    def _canonicalize_id(self, source_id: str) -> str:
        return canonicalize_source_id_loose(source_id)

    def _parse_source_ids(self, text: str) -> set[str]:
        return extract_source_ids(text, canonicalize=self._canonicalize_id)

    def _parse_citations(self, text: str) -> set[str]:
        return self._parse_source_ids(text)

    def _extract_reference_ids(self, reference_chunks: Sequence[Mapping[str, Any]]) -> set[str]:
        return extract_reference_ids(reference_chunks, canonicalize=self._canonicalize_id)

    def _score_citations(self, answer_text: str, reference_chunks: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
        return score_citations(answer_text, reference_chunks, canonicalize=self._canonicalize_id)

    def _score_retrieval(self, tool_text: str, reference_chunks: Sequence[Mapping[str, Any]]) -> float:
        return score_retrieval_sources(tool_text, reference_chunks, canonicalize=self._canonicalize_id)

    def _score_citation_grounding(self, answer_text: str, tool_text: str) -> float:
        return score_citation_grounding(answer_text, tool_text, canonicalize=self._canonicalize_id)

    def _score_rag_sources(
        self, answer_text: str, tool_text: str, reference_chunks: Sequence[Mapping[str, Any]]
    ) -> RagSourceScores:
        return score_rag_sources(answer_text, tool_text, reference_chunks, canonicalize=self._canonicalize_id)

    async def _judge_answer_quality(self, question: str, ground_truth: str, response: str) -> tuple[float, float]:
        return await judge_answer_quality(
            question=question, ground_truth=ground_truth, response=response, judge=self._judge
        )


# Module functions and not private methods: a subclass is somebody else's code and may use any name of its own.


def _weighted(
    env: RagEnv, correctness: float, retrieval: float, recall: float, grounding: float, brevity: float
) -> dict[str, float]:
    return {
        "answer_correctness": env._w_correctness * correctness,
        "retrieval_hit": env._w_retrieval_hit * retrieval,
        "citation_recall": env._w_citation_recall * recall,
        "citation_grounding": env._w_citation_grounding * grounding,
        "answer_length": env._w_length * brevity,
    }


def _tool_text(messages: Messages) -> str:
    contents: list[Any] = [message.get("content") for message in messages if message.get("role") == "tool"]
    return "\n".join(str(content) if content else "" for content in contents)


def score_search_efficiency(
    *,
    calls: int,
    correctness: float,
    reference_chunk_count: int,
    max_search_calls: int,
    weight: float,
    decay_rate: float = SEARCH_EFFICIENCY_DECAY_RATE,
) -> float:
    """Return a reward for a right answer that shrinks with every search beyond those the question needs.

    Args:
        calls: Searches made.
        correctness: How right the answer is; 0 or less gives 0.
        reference_chunk_count: Chunks to be found; as many searches and two more cost nothing.
        max_search_calls: More searches than these give 0.
        weight: The reward of a right answer that searched no more than necessary.
        decay_rate: How fast each further search lowers it, as the exponent of e.

    Raises:
        ValueError: a count of searches is negative.
    """
    if correctness <= 0 or not search_within_budget(calls, max_search_calls):
        return 0.0
    excess = max(0, calls - (reference_chunk_count + _FREE_SEARCHES))
    return weight * correctness * math.exp(-decay_rate * excess)


async def judge_answer_quality(
    *,
    question: str,
    ground_truth: str,
    response: str,
    judge: Judge,
    correctness_rubric: Rubric = CORRECTNESS_RUBRIC,
    conciseness_rubric: Rubric = CONCISENESS_RUBRIC,
) -> tuple[float, float]:
    """Ask a judge at once how correct and how concise an answer is, forgiving a judge that fails.

    `RagEnv` does not use it: a failing judge and a bad answer look alike here.

    Args:
        question: What was asked.
        ground_truth: Reference answer to show to the judge.
        response: What was answered; a blank one is not judged.
        judge: Whom to ask.
        correctness_rubric: What makes an answer correct.
        conciseness_rubric: What makes it concise.

    Returns:
        Correctness and conciseness, each from 0 to 1; both 0 if either question failed.
    """
    if not response.strip():
        return 0.0, 0.0
    try:
        correctness, conciseness = await all_of(
            evaluate_single_rubric(rubric, question=question, ground_truth=ground_truth, response=response, judge=judge)
            for rubric in (correctness_rubric, conciseness_rubric)
        )
    except Exception:
        logger.warning("[RagEnv] the judge failed; the answer scores 0 for correctness and conciseness", exc_info=True)
        return 0.0, 0.0
    return clip01(correctness.score), clip01(conciseness.score)
