"""The messages between the caller's process and a worker.

Comes in: the body of a frame. Goes out: one of the closed unions below. Refuses: everything else, as `FrameError`.
`docs/protocol.md` is the authoritative description; a test holds the two together.

A frame is a four-byte unsigned big-endian length, then that many bytes: one msgpack map, an `op` field naming the
message. There are two channels, each a Unix socket pair: *work* (calls and their results) and *auth* (header
requests, sandboxes of trials, and what has to be said while the worker's event loop is blocked).

Free-form values of an environment's author (rewards, transcripts) travel as one bounded `bytes` field holding JSON:
msgpack cannot carry integers beyond 64 bits, and an untyped field would let a peer choose the types we build.

This file is shipped into the worker, so it needs nothing but the standard library and msgspec.
"""

from __future__ import annotations

import struct
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec

from .errors import FrameError
from .fields import Amount, CallId, Count, Id, ModulePath, Names, PositiveCount, Seconds, Split, Text, Traceback, Url
from .fields import Diagnostic as Diagnostic  # parts of messages are at hand where messages are
from .fields import Origin as Origin
from .fields import PlainOutcome as PlainOutcome
from .fields import RemoteFailure as RemoteFailure
from .fields import RolloutSpec as RolloutSpec
from .fields import Stream as Stream
from .limits import (
    DATASET_PART_IDS,
    LOG_LINE_CHARS,
    MAX_DIAGNOSTICS,
    MAX_FRAME_BYTES,
    MAX_GROUP_ROLLOUTS,
    MAX_LOADED_MODULES,
    MAX_PLAIN_OUTCOMES,
    MAX_REWARD_BYTES,
)
from .text import bounded

PROTOCOL: Final = 2
"""Number of this protocol. Both ends must have the same one: the parent ships the worker's code itself."""

WORK_FD: Final = 3
AUTH_FD: Final = 4
BUNDLE_FD: Final = 5
DUMP_FD: Final = 6
TRIAL_FD: Final = 7
"""Descriptors a worker starts with: the two channels, a sealed memory file holding the bundle's pickle, a memory file
of fixed size for the interpreter's own account of where it was when it crashed or was about to be killed, and a socket
on which it is handed the sandboxes of trials."""

DUMP_SIGNAL: Final = 57
"""Makes a worker write that account, also while some code holds the interpreter's lock; a number nobody else uses."""

START_CALL: Final = 0
"""Call number that stands for the construction of the environment."""

SANDBOX_ERROR: Final = "sandbox_error"
ROLLOUT_TIMEOUT: Final = "rollout_timeout"
GROUP_TIMEOUT: Final = "group_timeout"
WORKER_LOST: Final = "worker_lost"
CANCELLED: Final = "cancelled"
"""Termination reasons that the runner chooses: the worker died, lied or hit a limit; a deadline passed; the worker had
to be killed for another call; the caller closed the environment."""

HEADER: Final = struct.Struct(">I")
TRIAL_NUMBER: Final = struct.Struct(">Q")
"""What comes with each descriptor on `TRIAL_FD`: the number of the request that it answers."""

SMALL_BYTES: Final = 1_500
"""A group's message below this breaks no bound: all its texts and lists are shorter than the shortest of those."""

MAX_REFUSAL_CHARS: Final = 500
"""What is said of a message that is refused."""


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
    dataset_examples: Count
    dataset_bytes: Count
    stall_s: Seconds


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


class Forget(_Message, frozen=True, tag="forget"):
    """Nobody in the caller's process can name this dataset any more."""

    dataset: CallId


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
    diagnostics: Annotated[list[Diagnostic], msgspec.Meta(max_length=MAX_DIAGNOSTICS)]
    scores_groups: bool = False


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


class GroupDone(_Message, frozen=True, tag="group-done"):
    """The group ended well, with these outcomes of its requests in order; instead of `outcome`s and `call-done`."""

    call: CallId
    outcomes: Annotated[list[PlainOutcome], msgspec.Meta(min_length=1, max_length=MAX_PLAIN_OUTCOMES)]


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

    @property
    def cost(self) -> int:
        """Characters it takes of the limit on output; both ends count alike."""
        return len(self.text) + len(self.logger) + LOG_LINE_CHARS


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


class OpenTrial(_Message, frozen=True, tag="open-trial"):
    """Worker to caller: a sandbox is wanted for a trial of this rollout, with no more than this of what there is."""

    request: CallId
    call: CallId
    rollout: Id
    cpus: Amount | None
    memory_bytes: PositiveCount | None
    disk_bytes: PositiveCount | None
    network: bool


class TrialOpened(_Message, frozen=True, tag="trial-opened"):
    """Caller to worker: the sandbox is there, and has been handed over."""

    request: CallId


class TrialRefused(_Message, frozen=True, tag="trial-refused"):
    """Caller to worker: no sandbox, and why."""

    request: CallId
    message: Text


class Inspect(_Message, frozen=True, tag="inspect"):
    """Caller to worker: say where the rollouts of a call (none: of all calls) are, also while the loop is blocked."""

    inspection: Count
    call: CallId | None


class Snapshot(_Message, frozen=True, tag="snapshot"):
    """Worker to caller, in answer to `inspect`: where a rollout that runs (none: its call) was, and its messages.

    `messages` is a JSON array as in `transcript`; none where the environment does not show them.
    """

    call: CallId
    rollout_id: Id | None
    stack: Traceback
    messages: bytes | None = None
    omitted_bytes: Count = 0


class Inspected(_Message, frozen=True, tag="inspected"):
    """Worker to caller: the end of the answer to `inspect`. Where its main thread was, in one line and as a stack."""

    inspection: Count
    where: Text
    stack: Traceback


class Stalled(_Message, frozen=True, tag="stalled"):
    """Worker to caller: the event loop has not turned for a while, or (`over`) does again.

    `call` and `rollouts` are what the blocking code runs for, as far as that is known. `unreported` counts stalls
    before this one that were not told, since they came too close upon another.
    """

    call: CallId | None
    rollouts: Annotated[list[Id], msgspec.Meta(max_length=MAX_GROUP_ROLLOUTS)]
    seconds: Seconds
    where: Text
    stack: Traceback
    over: bool
    unreported: Count = 0


ToWorker = Load | CreateDataset | RunGroup | RunRollout | Expire | Cancel | Forget | Close
_OfCalls = DatasetPart | RolloutsEnded | Transcript | Outcome | GroupDone | CallDone | CallFailed | Log
FromWorker = Hello | Ready | StartFailed | _OfCalls | Loaded | Closed
AuthToWorker = Headers | HeadersRefused | TrialOpened | TrialRefused | Inspect
AuthFromWorker = HeaderRequest | OpenTrial | Snapshot | Inspected | Stalled | Log
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
        if (type(message) is not RunGroup or len(body) > SMALL_BYTES) and len(body) <= MAX_FRAME_BYTES:
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
    return MessageDecoder(AuthFromWorker)  # type: ignore[arg-type]  # as above
