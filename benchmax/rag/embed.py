"""Texts to vectors, by way of an OpenAI-compatible embeddings API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from benchmax.auth import ModelAuth, create_async_openai_client
from benchmax.rewards.arguments import is_integer_from, is_number, require_text

__all__ = ["DEFAULT_EMBED_MODEL", "OpenAIEmbedder"]

DEFAULT_EMBED_MODEL: Final = "text-embedding-3-large"
"""A model to name where nothing speaks for another; no field has it as its default."""


@dataclass(frozen=True, slots=True)
class OpenAIEmbedder:
    """An embedding model: `await embedder(texts)` gives a vector for each text. Picklable as far as its `auth` is.

    Args:
        model: Name of the model as its server knows it.
        base_url: Base URL of an OpenAI-compatible API.
        auth: Credential source, asked before every HTTP attempt; `InjectedAuth("embedding")` in bundles.
        timeout: Seconds that one HTTP attempt may wait for the server at a time; `None` waits for ever.
        max_retries: How often the SDK repeats a request after a lost connection, 408, 409, 429 or 5xx.

    Raises:
        ValueError: a text is blank or a number is out of range.
        TypeError: `auth` is not a `ModelAuth`.
    """

    model: str
    base_url: str
    auth: ModelAuth = field(repr=False)
    timeout: float | None = 60.0
    max_retries: int = 2

    def __post_init__(self) -> None:
        require_text("OpenAIEmbedder", model=self.model, base_url=self.base_url)
        if not isinstance(self.auth, ModelAuth):
            raise TypeError(
                f"OpenAIEmbedder.auth must be a ModelAuth, got {type(self.auth).__name__}; "
                "use InjectedAuth('embedding') or StaticBearerAuth(token)."
            )
        if self.timeout is not None and (not is_number(self.timeout) or not self.timeout > 0):
            raise ValueError(
                f"OpenAIEmbedder.timeout must be a positive number of seconds or None, got {self.timeout!r}."
            )
        if not is_integer_from(self.max_retries, 0):
            raise ValueError(f"OpenAIEmbedder.max_retries must be an integer of at least 0, got {self.max_retries!r}.")

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return one vector for each text, in the order in which the server answers; all in one request.

        No text makes no request. Whatever the request raises, such as `openai.APIStatusError`, is raised as it is.

        Args:
            texts: The texts.

        Raises:
            TypeError: `texts` is not a list of strings.
        """
        given: object = texts
        if not isinstance(given, list):
            raise TypeError(f"OpenAIEmbedder needs a list of texts, got {type(given).__name__}.")
        for index, text in enumerate(given):
            if not isinstance(text, str):
                raise TypeError(f"OpenAIEmbedder needs strings to embed, but texts[{index}] is {type(text).__name__}.")
        if not texts:
            return []
        client = create_async_openai_client(
            model=self.model,
            base_url=self.base_url,
            auth=self.auth,
            request_id="rag-embedding",
            max_retries=self.max_retries,
        )
        try:
            response = await client.embeddings.create(model=self.model, input=texts, timeout=self.timeout)
        finally:
            await client.close()
        return [list(item.embedding) for item in response.data]
