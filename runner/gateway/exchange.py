"""One exchange between a client in a worker and a model: what is asked, what answers, and what is kept of it.

These are the values that everything in `gateway` works on. A session takes calls and gives each to its upstream; what
became of it is a trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request of a client.

    Args:
        session: The session's id.
        rollout_id: The rollout that it belongs to; under a binding what the worker says of it, or the call in words
            where no rollout asks: `constructor`, `create_dataset('eval')`, `group` and the id of its first rollout.
        binding: Name of the binding under which it is made; `None` for the rollout's own model.
        number: Its place in the session, from 0, counted when it arrived.
        method: `GET` or `POST`.
        route: Below the upstream's base URL, without a slash before it: `chat/completions`, `embeddings`, `models`.
        url: The whole address, when the client asked an address of its own choice; `None` at a session's base URL.
        headers: Those of the client that go on, by lower-case name.
        body: As the client sent it; what an upstream is given was written anew from the document.
        document: The body as JSON; `None` when it is none, and in what a session keeps.
    """

    session: str
    rollout_id: str
    binding: str | None
    number: int
    method: str
    route: str
    url: str | None
    headers: Mapping[str, str]
    body: bytes
    document: object


class Answer(Protocol):
    """What came back: status and headers are there, the body comes piece by piece."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Headers that the client is to have."""

    def body(self) -> AsyncIterator[bytes]:
        """Give the body, decoded; once.

        Raises:
            UpstreamError: it broke off.
        """

    async def aclose(self) -> None:
        """Let go of it; harmless twice."""


class Upstream(Protocol):
    """Where the calls of a session go."""

    async def send(self, call: ModelCall) -> Answer:
        """Send one call on.

        Raises:
            UpstreamError: there is no answer; its fields say how that is told to the client.
        """


class UpstreamError(Exception):
    """There is no answer, or only a part of one.

    Args:
        message: One sentence for a person, without secrets.
        code: What a program tells it by, such as `upstream_unreachable`.
        status: HTTP status for the client, if nothing has been sent yet.
        retry: Whether a client may try again.
    """

    def __init__(self, message: str, *, code: str, status: int = 502, retry: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.retry = retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens that a call took, as the server says, or (`estimated`) four bytes for one where it does not."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTrace:
    """What is kept of one call that is over.

    Args:
        call: What was asked.
        began: When it arrived, in seconds since 1970.
        seconds: From then until the last byte had been passed on.
        first_byte_s: From then until the first byte of an answer's body was there; `None` without one.
        status: HTTP status that the client got; 0 when it went before there was one.
        answer: The body that the client got, as far as it is kept.
        answer_type: Its content type.
        omitted_bytes: What was left out at the ends of the request's and the answer's body together.
        streamed: Whether it was a stream of events.
        usage: Tokens; `None` where nothing was answered.
        error: Code of what went wrong: the gateway's own, or the one in the error object of the server.
    """

    call: ModelCall
    began: float
    seconds: float
    first_byte_s: float | None
    status: int
    answer: bytes
    answer_type: str
    omitted_bytes: int = 0
    streamed: bool = False
    usage: Usage | None = None
    error: str | None = None


class Exchange(Protocol):
    """Who answers the calls of an isolated environment, and who is told of them."""

    def upstream(self, rollout_id: str, binding: str | None, default: Upstream) -> Upstream:
        """Return what answers the calls of one rollout, or of a binding there; mostly `default`."""

    def finished(self, trace: CallTrace) -> None:
        """A call is over. Called on the event loop; must not raise."""
