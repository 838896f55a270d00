"""What an environment searches with, and what it gets back."""

from __future__ import annotations

from typing import Any, Protocol, TypedDict, runtime_checkable

__all__ = ["SearchClient", "SearchResult"]


class SearchResult(TypedDict):
    """One passage of a corpus; a plain dictionary at run time.

    Attributes:
        content: The passage's text.
        source: Id under which the passage is shown to the model and cited by it; may be empty.
        metadata: Further facts to show; see `benchmax.rag.search_tool` for those that are left out.
        score: How well the passage fits the query, higher is better; 0 is not shown.
    """

    content: str
    source: str
    metadata: dict[str, Any]
    score: float


@runtime_checkable
class SearchClient(Protocol):
    """A corpus to search.

    A client becomes part of a bundle: it has to be picklable, and makes connections, SDK clients and indexes when they
    are first needed.
    """

    async def search(self, query: str, mode: str = "auto", top_k: int = 10) -> list[SearchResult]:
        """Return passages that fit a query, the best first.

        Args:
            query: What to look for.
            mode: How; one of `available_modes`, or whatever else a model made up.
            top_k: Most passages to return; comes from the model, too, and is not checked.
        """
        ...

    @property
    def available_modes(self) -> list[str]:
        """Ways to search, such as `vector`, `lexical` and `hybrid`.

        It is read when the environment is constructed, which is before bundling: it must need neither a connection nor
        a credential.
        """
        ...
