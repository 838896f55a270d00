"""Grouping texts that say the same, and dividing rewards among them so that repetition does not pay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmax.rewards import prompts
from benchmax.rewards.answers import optional_text, shortened
from benchmax.rewards.arguments import is_blank, is_integer_from, is_number, require_same_length, require_text
from benchmax.rewards.judge import Judge, JudgeError

__all__ = [
    "ClusterResult",
    "DiversityConfig",
    "LLMDiversityConfig",
    "NgramDiversityConfig",
    "cluster_texts",
    "scale_by_diversity",
]


@dataclass(frozen=True, slots=True)
class NgramDiversityConfig:
    """Texts belong together when their character n-grams overlap enough.

    Args:
        n: Length of the n-grams.
        similarity_threshold: Jaccard similarity, in [0, 1], from which two texts are linked.

    Raises:
        ValueError: `n` is not positive or the threshold is out of range.
    """

    n: int = 3
    similarity_threshold: float = 0.5

    def __post_init__(self) -> None:
        if not is_integer_from(self.n, 1):
            raise ValueError(f"NgramDiversityConfig.n must be a positive integer, got {self.n!r}.")
        if not is_number(self.similarity_threshold) or not 0 <= self.similarity_threshold <= 1:
            raise ValueError(
                "NgramDiversityConfig.similarity_threshold must be a number in [0, 1], "
                f"got {self.similarity_threshold!r}."
            )


@dataclass(frozen=True, slots=True)
class LLMDiversityConfig:
    """Texts belong together when a judge says so.

    Args:
        judge: Whom to ask.
        instructions: What makes texts belong together.
        max_tokens: Most tokens of the judge's answer.
        temperature: Sampling temperature.

    Raises:
        ValueError: the instructions are blank or `max_tokens` is below 1.
    """

    judge: Judge
    instructions: str = prompts.DEFAULT_DIVERSITY_INSTRUCTIONS
    max_tokens: int = 512
    temperature: float = 0.0

    def __post_init__(self) -> None:
        require_text("LLMDiversityConfig", instructions=self.instructions)
        if not is_integer_from(self.max_tokens, 1):
            raise ValueError(f"LLMDiversityConfig.max_tokens must be a positive integer, got {self.max_tokens!r}.")


DiversityConfig: TypeAlias = NgramDiversityConfig | LLMDiversityConfig


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """Which texts belong together.

    Args:
        cluster_ids: The cluster of each text.
        divisors: The size of that cluster.
        labels: What a judge called the cluster, for each text; empty without a judge.
        raw_response: The judge's answer as it came; `None` without a judge.
    """

    cluster_ids: tuple[str, ...]
    divisors: tuple[float, ...]
    labels: tuple[str, ...] = ()
    raw_response: str | None = None

    @property
    def n_clusters(self) -> int:
        """How many different clusters there are."""
        return len(set(self.cluster_ids))


async def cluster_texts(texts: Sequence[object], config: DiversityConfig, *, context: str = "") -> ClusterResult:
    """Group texts.

    Args:
        texts: The texts; other objects count as their `str()`. A single one is its own cluster unasked.
        config: How to compare them.
        context: What a judge should know about them, such as the question.

    Raises:
        JudgeError: the judge's request failed, or its answer is no assignment of every text.
    """
    items = list(map(str, texts))
    if len(items) < 2:
        return _result(["0"] * len(items))
    if isinstance(config, NgramDiversityConfig):
        return _result(_ngram_clusters(items, config))
    return await _judged_clusters(items, config, context)


async def scale_by_diversity(
    rewards: Sequence[Mapping[str, float]], texts: Sequence[object], config: DiversityConfig, *, context: str = ""
) -> tuple[list[dict[str, float]], ClusterResult]:
    """Divide every reward by the number of texts that say the same as its own.

    Args:
        rewards: Rewards of each text.
        texts: The texts.
        config: How to compare them.
        context: What a judge should know about them.

    Returns:
        The divided rewards, and the clusters.

    Raises:
        ValueError: there are more rewards than texts, or fewer.
        JudgeError: as in `cluster_texts`.
    """
    require_same_length("scale_by_diversity", rewards=rewards, texts=texts)
    clusters = await cluster_texts(texts, config, context=context)
    scaled = [
        {name: value / divisor for name, value in components.items()}
        for components, divisor in zip(rewards, clusters.divisors, strict=True)
    ]
    return scaled, clusters


def _result(cluster_ids: Sequence[str], labels: Sequence[str] = (), raw_response: str | None = None) -> ClusterResult:
    sizes = Counter(cluster_ids)
    divisors = tuple(float(sizes[cluster_id]) for cluster_id in cluster_ids)
    return ClusterResult(tuple(cluster_ids), divisors, tuple(labels), raw_response)


def _ngram_clusters(texts: Sequence[str], config: NgramDiversityConfig) -> list[str]:
    """Number the groups of texts that are linked directly or through others, in order of first appearance."""
    grams = [_ngrams(text.lower().strip(), config.n) for text in texts]
    numbers: list[int | None] = [None] * len(texts)
    found = 0
    for first in range(len(texts)):
        if numbers[first] is not None:
            continue
        numbers[first] = found
        reached = [first]
        while reached:
            here = reached.pop()
            for other, number in enumerate(numbers):
                if number is None and _similarity(grams[here], grams[other]) >= config.similarity_threshold:
                    numbers[other] = found
                    reached.append(other)
        found += 1
    return list(map(str, numbers))


def _ngrams(text: str, n: int) -> frozenset[str]:
    if len(text) < n:
        return frozenset([text] if text else ())
    return frozenset(text[start : start + n] for start in range(len(text) - n + 1))


def _similarity(a: frozenset[str], b: frozenset[str]) -> float:
    if not a or not b:
        return float(not a and not b)
    shared = len(a & b)
    return shared / (len(a) + len(b) - shared)


async def _judged_clusters(texts: Sequence[str], config: LLMDiversityConfig, context: str) -> ClusterResult:
    try:
        prompt = prompts.build_diversity_prompt(texts, context=context, instructions=config.instructions)
        answer, raw = await config.judge.request_json(
            prompt,
            request_id="diversity-clustering",
            temperature=config.temperature,
            max_tokens=config.max_tokens,
        )
        cluster_ids, labels = _assignments(answer, len(texts))
    except Exception as error:
        raise JudgeError(f"diversity clustering failed: {error}") from error
    return _result(cluster_ids, labels, raw)


def _assignments(answer: Mapping[str, Any], count: int) -> tuple[list[str], list[str]]:
    """Return the cluster and the label of each of `count` texts."""
    items = answer.get("assignments")
    if not isinstance(items, list):
        raise ValueError(f"'assignments' must be a list, got {shortened(repr(items))}")
    found: dict[int, tuple[str, str]] = {}
    for item in items:
        if not isinstance(item, dict):
            raise ValueError(f"an assignment must be an object, got {shortened(repr(item))}")
        index, cluster_id = item.get("index"), item.get("cluster_id")
        if not isinstance(index, int) or isinstance(index, bool):
            raise ValueError(f"an assignment needs an integer as 'index', got {shortened(repr(item))}")
        if not 0 <= index < count:
            raise ValueError(f"the index {index} is out of range; there are 0 to {count - 1}")
        if index in found:
            raise ValueError(f"the index {index} is repeated")
        if not isinstance(cluster_id, str) or is_blank(cluster_id):
            raise ValueError(f"an assignment needs a non-blank string as 'cluster_id', got {shortened(repr(item))}")
        found[index] = (cluster_id.strip(), optional_text(item, "label").strip())
    omitted = sorted(set(range(count)) - set(found))
    if omitted:
        raise ValueError(f"the indices {omitted} are omitted")
    return [found[index][0] for index in range(count)], [found[index][1] for index in range(count)]
