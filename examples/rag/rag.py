"""Questions about the moons of the Solar System, to be answered from 52 passages that the model has to search.

`Moons` is a `RagEnv`: the model calls `search`, and a judge decides whether its answer is right. `Passages` is the
`SearchClient` behind it, with three modes: `lexical` (BM25), `vector` (an embedding model) and `hybrid` (both, fused).
The README has the commands.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25s  # in the packages of the bundle: --pip bm25s
import numpy as np  # comes with it

from benchmax.envs import DatasetSplit, InjectedAuth, JsonlDataset, JsonRow
from benchmax.rag import OpenAIEmbedder, RagEnv, SearchResult

FUSION = 60
"""The usual constant of reciprocal rank fusion: how much less the first ranks stand out."""


class Passages:
    """A small corpus in memory. It pickles as it is until it is loaded, which happens where the environment runs."""

    def __init__(self, embedder: OpenAIEmbedder) -> None:
        self.embedder = embedder
        self.passages: list[dict[str, str]] = []

    @property
    def available_modes(self) -> list[str]:
        return ["hybrid", "lexical", "vector"]

    def load(self, path: Path) -> None:
        """Read passages, one `{"id": ..., "title": ..., "text": ...}` per line, and index their words."""
        self.passages = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        self.texts = [f"{passage['title']}. {passage['text']}" for passage in self.passages]
        self.words = bm25s.BM25()
        self.words.index(bm25s.tokenize(self.texts, show_progress=False), show_progress=False)
        self.vectors: Any = None
        self.embedding = asyncio.Lock()

    async def search(self, query: str, mode: str = "auto", top_k: Any = 10) -> list[SearchResult]:
        """Return the best passages; a mode that does not exist is `hybrid`, a limit that is none is 10."""
        rankings = []
        if mode != "vector":
            rankings.append(self._lexical(query))
        if mode != "lexical":
            rankings.append(await self._vector(query))
        scores = rankings[0] if len(rankings) == 1 else fused(rankings)
        limit = top_k if isinstance(top_k, int) and top_k > 0 else 10
        best = sorted(scores, key=lambda index: -scores[index])[:limit]
        return [self._result(index, scores[index]) for index in best]

    def _lexical(self, query: str) -> dict[int, float]:
        (words,) = bm25s.tokenize([query], return_ids=False, show_progress=False)
        scores = self.words.get_scores(words)
        return {index: float(score) for index, score in enumerate(scores) if score > 0}

    async def _vector(self, query: str) -> dict[int, float]:
        async with self.embedding:
            # once, by whichever rollout is first; if it fails, the next one tries again
            if self.vectors is None:
                self.vectors = np.array(await self.embedder(self.texts))
        (vector,) = await self.embedder([query])
        # of unit length, all of them, so that this is the cosine
        return dict(enumerate((self.vectors @ np.array(vector)).tolist()))

    def _result(self, index: int, score: float) -> SearchResult:
        passage = self.passages[index]
        metadata = {"title": passage["title"]}
        return SearchResult(content=passage["text"], source=passage["id"], metadata=metadata, score=score)


def fused(rankings: Sequence[dict[int, float]]) -> dict[int, float]:
    """Merge rankings by reciprocal ranks, so that scores of different kinds need not be compared; 1 is first in all."""
    total: dict[int, float] = {}
    for scores in rankings:
        for rank, index in enumerate(sorted(scores, key=lambda index: -scores[index])):
            total[index] = total.get(index, 0.0) + FUSION / (FUSION + rank) / len(rankings)
    return total


class Moons(RagEnv):
    """The model may search four times. Its judge and its embeddings are servers that are named when it is bundled."""

    def __init__(
        self,
        *,
        judge_base_url: str = "http://127.0.0.1:8801/v1",
        judge_model: str = "mock",
        embedding_base_url: str = "http://127.0.0.1:8802/v1",
        embedding_model: str = "all-minilm-l6-v2",
        max_search_calls: int = 4,
    ) -> None:
        self.passages = Passages(OpenAIEmbedder(embedding_model, embedding_base_url, InjectedAuth("embedding")))
        super().__init__(
            self.passages,
            judge_base_url=judge_base_url,
            judge_model=judge_model,
            max_search_calls=max_search_calls,
            system_prompt=self.render_system_prompt(
                corpus_description="short passages about the moons of the Solar System, their discovery and the "
                "spacecraft that visited them.",
                max_search_calls=max_search_calls,
            ),
        )

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> JsonlDataset[JsonRow]:
        self.passages.load(Path(base_dir) / "corpus.jsonl")
        return await super().create_dataset(split, base_dir, max_examples=max_examples)
