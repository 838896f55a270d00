"""Outcomes, attempts and transcripts as messages; a value that cannot cross costs its own rollout only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome

from ..errors import FrameError
from ..limits import MAX_ID_CHARS, MAX_REWARD_BYTES, MAX_TEXT_CHARS
from ..protocol import Origin, Outcome, Transcript, bounded
from .failure import text_of

SANDBOX_ERROR = "sandbox_error"
MAX_DEPTH = 50
"""Kept of a message that is nested too deeply for JSON, or in itself."""
MAX_INT_BITS = 10_000
"""Larger integers are refused by Python's own conversion to decimal digits."""
_json = msgspec.json.Encoder()


def outcome_message(call: int, rollout_id: str, value: RolloutOutcome | RolloutAttempt, *, origin: Origin) -> Outcome:
    """Turn an outcome, or an unscored attempt, into a message that can cross."""
    try:
        rewards = None if value.rewards is None else rewards_json(value.rewards)
    except (FrameError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return Outcome(
            call=call,
            rollout_id=rollout_id,
            termination_reason=SANDBOX_ERROR,
            rewards=b"{}",
            error=bounded(f"The rollout's rewards cannot cross to the caller: {text_of(error)}", MAX_TEXT_CHARS),
            origin="runner",
        )
    return Outcome(
        call=call,
        rollout_id=rollout_id,
        termination_reason=bounded(value.termination_reason, MAX_ID_CHARS),
        rewards=rewards,
        error=None if value.error is None else bounded(value.error, MAX_TEXT_CHARS),
        origin=origin,
    )


def rewards_json(rewards: Mapping[str, float]) -> bytes:
    """Encode a reward map as a JSON object of numbers, exactly: integers stay integers of any size.

    Raises:
        FrameError: it is larger than `MAX_REWARD_BYTES`.
        TypeError, ValueError: a value is no number JSON can hold.
    """
    plain: dict[str, float] = {}
    for name, value in rewards.items():
        kind = type(value)
        if kind is not float and kind is not int:
            # subclasses such as numpy.float64; bool and everything else never get into a valid map
            value = int(value) if isinstance(value, int) else float(value)
        plain[name if type(name) is str else str(name)] = value
    try:
        data = _json.encode(plain)
    except UnicodeEncodeError:
        data = _json.encode({bounded(name, MAX_ID_CHARS): value for name, value in plain.items()})
    if len(data) > MAX_REWARD_BYTES:
        raise FrameError(f"{len(data)} bytes as JSON, the limit is {MAX_REWARD_BYTES}.")
    return data


def transcript_message(call: int, rollout_id: str, attempt: RolloutAttempt, limit: int) -> Transcript | None:
    """Return the attempt's messages, when it has any: whole if they fit `limit` bytes, else from the start on."""
    try:
        messages = getattr(attempt, "messages", None)
    except Exception:  # noqa: BLE001 - a property of an author's own; no transcript is the answer
        return None
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        return None
    pieces: list[bytes] = []
    size = 2
    omitted = 0
    for message in messages:
        piece = _message_json(message)
        if omitted or size + len(piece) + 1 > limit:
            omitted += len(piece)
            continue
        pieces.append(piece)
        size += len(piece) + 1
    return Transcript(call=call, rollout_id=rollout_id, messages=b"[" + b",".join(pieces) + b"]", omitted_bytes=omitted)


def _message_json(message: object) -> bytes:
    """Encode one message; never raises, since an odd transcript must not change how its rollout ends."""
    try:
        piece = json.dumps(message, default=_shown, allow_nan=False).encode()
        # the other end is stricter about lone surrogates and depth
        msgspec.json.decode(piece)
    except Exception:  # noqa: BLE001 - mappings and sequences of an author's own may do anything
        try:
            return json.dumps(_plain(message, MAX_DEPTH)).encode()
        except Exception as error:  # noqa: BLE001 - as above
            return json.dumps(f"<message not available: {type(error).__name__}>").encode()
    return piece


def _plain(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # an escaped surrogate takes six characters
        return bounded(value, 6 * len(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, int):
        return value if value.bit_length() <= MAX_INT_BITS else f"<int of {value.bit_length()} bits>"
    if depth == 0 or not isinstance(value, (Mapping, list, tuple)):
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        return {bounded(str(key), MAX_ID_CHARS): _plain(item, depth - 1) for key, item in value.items()}
    return [_plain(item, depth - 1) for item in value]


def _shown(value: Any) -> object:
    """Stand in for what JSON cannot hold, so that a transcript with one odd value is still worth reading."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return f"<{type(value).__name__}>"
