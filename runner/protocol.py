"""The messages between the caller's process and a worker, and how they are framed.

Comes in: bytes of a channel. Goes out: one of the closed unions below. Refuses: everything else, as `FrameError`.
`docs/protocol.md` is the authoritative description; a test holds the two together.

A frame is a four-byte unsigned big-endian length, then that many bytes: one msgpack map, an `op` field naming the
message. There are two channels, each a Unix socket pair: *work* (calls and their results) and *auth* (header
requests, answered even while the worker's event loop is blocked).

Free-form values of an environment's author (rewards, transcripts) travel as one bounded `bytes` field holding JSON:
msgpack cannot carry integers beyond 64 bits, and an untyped field would let a peer choose the types we build.

This file is shipped into the worker, so it needs nothing but the standard library and msgspec.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec

from .errors import FrameError
from .limits import (
    DATASET_PART_IDS,
    MAX_FRAME_BYTES,
    MAX_GROUP_ROLLOUTS,
    MAX_ID_CHARS,
    MAX_LOADED_MODULES,
    MAX_MODULE_CHARS,
    MAX_REWARD_BYTES,
    MAX_TEXT_CHARS,
    MAX_TRACEBACK_CHARS,
    MAX_URL_CHARS,
)

PROTOCOL: Final = 1
"""Number of this protocol. Both ends must have the same one: the parent ships the worker's code itself."""

WORK_FD: Final = 3
AUTH_FD: Final = 4
BUNDLE_FD: Final = 5
"""Descriptors a worker starts with: the two channels, and a sealed memory file holding the bundle's pickle."""

HEADER: Final = struct.Struct(">I")
MAX_REFUSAL_CHARS: Final = 500
"""What is said of a message that is refused."""

CallId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]
Url = Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
Traceback = Annotated[str, msgspec.Meta(max_length=MAX_TRACEBACK_CHARS)]
ModulePath = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODULE_CHARS)]
Split = Literal["train", "eval"]
Stream = Literal["log", "stdout", "stderr"]
Origin = Literal["environment", "runner"]
Names = Annotated[list[Id], msgspec.Meta(max_length=1000)]


class RemoteFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """An exception as text: qualified type name, message and formatted traceback, each bounded by the sender."""

    type: Id
    message: Text
    traceback: Traceback = ""


class RolloutSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One request of a group: which example (by its position in a dataset of this worker), which model, where."""

    rollout_id: Id
    dataset: CallId
    position: Count
    model: Id
    base_url: Url


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One static finding of the environment about itself."""

    severity: Literal["warning", "error"]
    code: Text
    message: Text
    location: Text | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", gc=False):
    """What every message has in common."""


# -- caller to worker, work channel ---------------------------------------------------------------------------


class Load(_Message, frozen=True, tag="load"):
    """Load the bundle on descriptor 5 and construct its environment. The first message, sent once."""

    protocol: int
    metadata: bytes
    bindings: Names
    rollout_log_bytes: Count
    transcript_bytes: Count


class CreateDataset(_Message, frozen=True, tag="create-dataset"):
    """Create a dataset; its examples are named by `call` and their position from then on."""

    call: CallId
    split: Split
    base_dir: Text
    max_examples: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None
    bindings: Names


class RunGroup(_Message, frozen=True, tag="run-group"):
    """Run one group of sibling rollouts and score it."""

    call: CallId
    split: Split
    rollouts: Annotated[list[RolloutSpec], msgspec.Meta(min_length=1, max_length=MAX_GROUP_ROLLOUTS)]
    bindings: Names


class RunRollout(_Message, frozen=True, tag="run-rollout"):
    """Run a single rollout without group scoring."""

    call: CallId
    split: Split
    rollout: RolloutSpec
    bindings: Names


class Expire(_Message, frozen=True, tag="expire"):
    """A deadline passed: fail the rollouts of this call that still run, or its scoring if none does."""

    call: CallId
    reason: Id
    message: Text


class Cancel(_Message, frozen=True, tag="cancel"):
    """The caller no longer wants this call: cancel it and answer with `call-failed`."""

    call: CallId


class Close(_Message, frozen=True, tag="close"):
    """Close the environment and end. The last message."""


# -- worker to caller, work channel ---------------------------------------------------------------------------


class Hello(_Message, frozen=True, tag="hello"):
    """First message of a worker, before anything of the bundle is loaded."""

    protocol: int
    python: Id
    benchmax: Id


class Ready(_Message, frozen=True, tag="ready"):
    """The environment was constructed."""

    environment: Id
    scorable_termination_reasons: Names
    requires_public_model_endpoint: bool
    diagnostics: Annotated[list[Diagnostic], msgspec.Meta(max_length=1000)]


class StartFailed(_Message, frozen=True, tag="start-failed"):
    """The environment could not be loaded or constructed; the worker ends after this."""

    phase: Literal["protocol", "load", "construct", "describe"]
    failure: RemoteFailure


class DatasetPart(_Message, frozen=True, tag="dataset-part"):
    """Ids of the next examples of a dataset, in order."""

    call: CallId
    ids: Annotated[list[Id], msgspec.Meta(max_length=DATASET_PART_IDS)]


class RolloutsEnded(_Message, frozen=True, tag="rollouts-ended"):
    """These rollouts of a call have run (however they ended); scoring of the group may still be to come."""

    call: CallId
    rollouts: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MAX_GROUP_ROLLOUTS)]
    seconds: Annotated[list[Seconds], msgspec.Meta(min_length=1, max_length=MAX_GROUP_ROLLOUTS)]


class Transcript(_Message, frozen=True, tag="transcript"):
    """A rollout's messages as a JSON array, when its attempt has any and they fit the limit."""

    call: CallId
    rollout_id: Id
    messages: bytes
    omitted_bytes: Count = 0


class Outcome(_Message, frozen=True, tag="outcome"):
    """How one rollout ended. `rewards` is a JSON object of numbers; absent only for an unscored attempt.

    `origin` says who chose the reason: code of the bundle, or the runner (a deadline, a value that could not cross).
    """

    call: CallId
    rollout_id: Id
    termination_reason: Id
    rewards: Annotated[bytes, msgspec.Meta(max_length=MAX_REWARD_BYTES)] | None
    error: Text | None = None
    origin: Origin = "environment"


class CallDone(_Message, frozen=True, tag="call-done"):
    """The call ended well; everything it had to say has been said."""

    call: CallId


class CallFailed(_Message, frozen=True, tag="call-failed"):
    """The call raised."""

    call: CallId
    failure: RemoteFailure


class Log(_Message, frozen=True, tag="log"):
    """Something was logged or printed inside these rollouts of a call (none: outside of any)."""

    call: CallId | None
    rollouts: Annotated[list[Id], msgspec.Meta(max_length=MAX_GROUP_ROLLOUTS)]
    stream: Stream
    level: Annotated[int, msgspec.Meta(ge=0, le=1000)]
    logger: Text
    text: Text
    dropped: Count = 0


class Loaded(_Message, frozen=True, tag="loaded"):
    """Modules of the venv that were loaded from source, as paths relative to it. Sent twice at most."""

    modules: Annotated[list[ModulePath], msgspec.Meta(min_length=1, max_length=MAX_LOADED_MODULES)]


class Closed(_Message, frozen=True, tag="closed"):
    """The environment's `aclose` returned, or raised."""

    failure: RemoteFailure | None = None


# -- auth channel ---------------------------------------------------------------------------------------------


class HeaderRequest(_Message, frozen=True, tag="header-request"):
    """Worker to caller: headers are wanted for one model request, under a binding or (none) the rollout's own auth."""

    request: CallId
    call: CallId
    binding: Id | None
    rollout: Id | None
    base_url: Url
    model: Text
    rollout_id: Text


class Headers(_Message, frozen=True, tag="headers"):
    """Caller to worker: the headers to send with that one request."""

    request: CallId
    headers: dict[str, str]


class HeadersRefused(_Message, frozen=True, tag="headers-refused"):
    """Caller to worker: no headers, and why."""

    request: CallId
    failure: RemoteFailure


ToWorker = Load | CreateDataset | RunGroup | RunRollout | Expire | Cancel | Close
_OfCalls = DatasetPart | RolloutsEnded | Transcript | Outcome | CallDone | CallFailed | Log
FromWorker = Hello | Ready | StartFailed | _OfCalls | Loaded | Closed
AuthToWorker = Headers | HeadersRefused
AuthFromWorker = HeaderRequest
AnyMessage = ToWorker | FromWorker | AuthToWorker | AuthFromWorker

_encoder = msgspec.msgpack.Encoder()
_any_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """Encode one message as a whole frame.

    What the other end would refuse is refused here, where it is known who wanted to send it: an encoder checks no
    bounds, and a peer that receives something out of bounds can only give up the channel.

    Raises:
        FrameError: the message cannot be encoded, breaks a bound of a field, or is larger than `MAX_FRAME_BYTES`.
    """
    try:
        body = _encoder.encode(message)
        if len(body) <= MAX_FRAME_BYTES:
            _any_decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError, TypeError) as error:
        text = bounded(f"{error}", MAX_REFUSAL_CHARS)
        raise FrameError(f"cannot send a {type(message).__name__} message: {text}.") from error
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(
            f"a {type(message).__name__} message of {len(body)} bytes exceeds the limit of {MAX_FRAME_BYTES}."
        )
    return HEADER.pack(len(body)) + body


M = TypeVar("M")


class MessageDecoder(Generic[M]):
    """Turns the body of a frame into a message of one closed union.

    Args:
        type_: The union of one direction of one channel, e.g. `FromWorker`.
    """

    def __init__(self, type_: type[M]) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(type_)

    def decode(self, body: bytes | memoryview) -> M:
        """Decode one body.

        Raises:
            FrameError: it is not one whole, valid message of the union.
        """
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError) as error:
            # the text quotes names and values of the peer's choosing, of any length
            raise FrameError(f"not a valid message: {bounded(f'{error}', MAX_REFUSAL_CHARS)}.") from error


def to_worker_decoder() -> MessageDecoder[ToWorker]:
    """Return a decoder of what a worker receives on the work channel."""
    return MessageDecoder(ToWorker)  # type: ignore[arg-type]  # a union is not a type object to checkers


def from_worker_decoder() -> MessageDecoder[FromWorker]:
    """Return a decoder of what a worker sends on the work channel."""
    return MessageDecoder(FromWorker)  # type: ignore[arg-type]  # as above


def auth_to_worker_decoder() -> MessageDecoder[AuthToWorker]:
    """Return a decoder of what a worker receives on the auth channel."""
    return MessageDecoder(AuthToWorker)  # type: ignore[arg-type]  # as above


def auth_from_worker_decoder() -> MessageDecoder[AuthFromWorker]:
    """Return a decoder of what a worker sends on the auth channel."""
    return MessageDecoder(AuthFromWorker)


def frame_length(header: bytes | bytearray | memoryview, *, limit: int = MAX_FRAME_BYTES) -> int:
    """Read a frame's length from its four header bytes.

    Raises:
        FrameError: the length is zero or above the limit.
    """
    length: int = HEADER.unpack(header)[0]
    if length == 0:
        raise FrameError("a frame announces 0 bytes, expected at least 1.")
    if length > limit:
        raise FrameError(f"a frame announces {length} bytes, expected at most {limit}.")
    return length


class FrameParser:
    """Cuts a stream of bytes into frames, keeping what is not whole yet.

    No room is made for a body that has not come; a length is checked as soon as its four bytes are there.
    """

    def __init__(self, *, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[bytes]:
        """Take in bytes at once, and give the bodies that are whole now one by one.

        Every body before a broken frame is given, however the bytes were cut into pieces on their way.

        Raises:
            FrameError: while iterating: the next frame announces a length of zero or above the limit.
        """
        self._buffer += data
        return self._whole()

    def _whole(self) -> Iterator[bytes]:
        buffer = self._buffer
        start, end = 0, len(buffer)
        try:
            while end - start >= HEADER.size:
                body = start + HEADER.size
                stop = body + frame_length(buffer[start:body], limit=self._limit)
                if stop > end:
                    return
                start = stop
                yield bytes(buffer[body:stop])
        finally:
            # once for all of them: cutting off the front for each would cost as much as reading it
            del buffer[:start]

    def finish(self) -> None:
        """Say that no more bytes will come.

        Raises:
            FrameError: an unfinished frame is left; the text says expected and got.
        """
        left = len(self._buffer)
        if left == 0:
            return
        if left < HEADER.size:
            raise FrameError(f"the stream ended inside a frame's header: expected {HEADER.size} bytes, got {left}.")
        expected = frame_length(bytes(self._buffer[: HEADER.size]), limit=self._limit)
        raise FrameError(
            f"the stream ended inside a frame's body: expected {expected} bytes, got {left - HEADER.size}."
        )


def bounded(text: str, limit: int) -> str:
    """Shorten text to `limit` characters, keeping both ends, and make it valid UTF-8."""
    if type(text) is not str:
        # numpy's strings and the like are no msgpack text, and a subclass may answer as it likes below
        text = str.__str__(text)
    if len(text) > limit:
        mark = f"… {len(text) - limit} characters left out …"
        half = max(0, (limit - len(mark)) // 2)
        text = (text[:half] + mark + text[len(text) - half :])[:limit] if half else text[:limit]
    try:
        text.encode()
    except UnicodeEncodeError:
        # a lone surrogate cannot cross; show it as an escape rather than lose the whole text
        text = text.encode("utf-8", "backslashreplace").decode()[:limit]
    return text
