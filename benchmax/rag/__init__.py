"""Environments in which a model answers questions by searching a corpus, and what they search and embed with."""

from benchmax.rag.embed import DEFAULT_EMBED_MODEL, OpenAIEmbedder
from benchmax.rag.env import RagEnv
from benchmax.rag.search import SearchClient, SearchResult

__all__ = ["DEFAULT_EMBED_MODEL", "OpenAIEmbedder", "RagEnv", "SearchClient", "SearchResult"]
