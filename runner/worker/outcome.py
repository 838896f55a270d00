"""Outcomes, attempts and transcripts as messages; a value that cannot cross costs its own rollout only."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from benchmax.envs.shared_types import RolloutAttempt, RolloutOutcome

from ..errors import FrameError
from ..fields import Origin
from ..limits import (
    MAX_ID_CHARS,
    MAX_PLAIN_OUTCOMES,
    MAX_REWARD_BYTES,
    MAX_REWARD_COMPONENTS,
    MAX_TEXT_CHARS,
    MAX_TRANSCRIPT_DEPTH,
    MAX_TRANSCRIPT_VALUES,
)
from ..protocol import SANDBOX_ERROR, GroupDone, Outcome, PlainOutcome, Transcript, encode
from ..text import bounded
from ..transcript import is_flat, values
from .failure import text_of

MAX_DEPTH = 50
"""Kept of a message that is nested too deeply for JSON, or in itself."""
MAX_INT_BITS = 10_000
"""Larger integers are refused by Python's own conversion to decimal digits."""
_json = msgspec.json.Encoder()


def checked_outcomes(returned: object, wanted: Sequence[str]) -> dict[str, RolloutOutcome]:
    """Return what `run_group` returned, in the order of the rollouts that are wanted.

    Raises:
        TypeError: it is not one outcome for each of them and no other.
    """
    if not isinstance(returned, Mapping) or set(returned) != set(wanted):
        shape = f"outcomes for {sorted(map(str, returned))}" if isinstance(returned, Mapping) else _a(returned)
        raise TypeError(f"run_group returned {shape}, expected one outcome for each of {list(wanted)}")
    outcomes = {rollout_id: returned[rollout_id] for rollout_id in wanted}
    for rollout_id, outcome in outcomes.items():
        if not isinstance(outcome, RolloutOutcome):
            raise TypeError(f"run_group gave {rollout_id!r} {_a(outcome)}, expected a RolloutOutcome")
    return outcomes


def _a(value: object) -> str:
    return f"a {type(value).__name__}"


def short_answer(call: int, outcomes: Mapping[str, RolloutOutcome], seconds: Mapping[str, float]) -> bytes | None:
    """Return the one frame that a group can be answered with if its outcomes are plain, or `None` if they are not.

    Args:
        call: The group's call.
        outcomes: Its outcomes in request order.
        seconds: How long those rollouts ran of which the caller has not been told yet.
    """
    if len(outcomes) > MAX_PLAIN_OUTCOMES:
        return None
    plain: list[PlainOutcome] = []
    try:
        for rollout_id, outcome in outcomes.items():
            # a subclass may do anything when it is read
            if type(outcome) is not RolloutOutcome or outcome.error is not None:
                return None
            reason, rewards = outcome.termination_reason, outcome.rewards
            # nothing was blank when the outcome was made, but maps may be changed
            if type(rewards) is not dict or type(reason) is not str or not all(map(str.strip, (reason, *rewards))):
                return None
            plain.append(PlainOutcome(termination_reason=reason, rewards=rewards, seconds=seconds.get(rollout_id)))
        return encode(GroupDone(call=call, outcomes=plain))
    except (FrameError, TypeError):
        # too long a name, too large an integer, a number or text of a class of its own
        return None


def outcome_message(call: int, rollout_id: str, value: RolloutOutcome | RolloutAttempt, *, origin: Origin) -> Outcome:
    """Turn an outcome, or an unscored attempt, into a message that can cross. Never raises."""
    try:
        return Outcome(
            call=call,
            rollout_id=rollout_id,
            termination_reason=_text(value.termination_reason, MAX_ID_CHARS),
            rewards=None if value.rewards is None else rewards_json(value.rewards),
            error=None if value.error is None else _text(value.error, MAX_TEXT_CHARS),
            origin=origin,
        )
    except BaseException as error:  # noqa: BLE001 - maps and texts of an author's own may do anything
        return Outcome(
            call=call,
            rollout_id=rollout_id,
            termination_reason=SANDBOX_ERROR,
            rewards=b"{}",
            error=bounded(f"The rollout's outcome cannot cross to the caller: {text_of(error)}", MAX_TEXT_CHARS),
            origin="runner",
        )


def _text(value: str, limit: int) -> str:
    text = bounded(value, limit)
    if not text.strip():
        raise ValueError("a reason or an error is blank")
    return text


def rewards_json(rewards: Mapping[str, float]) -> bytes:
    """Encode a reward map as a JSON object of numbers, exactly: integers stay integers of any size.

    The map was valid when its outcome was made, but may have changed since.

    Raises:
        FrameError: it has more than `MAX_REWARD_COMPONENTS`, or is larger than `MAX_REWARD_BYTES`.
        TypeError: a name is no text, or a value no number.
        ValueError, OverflowError: a name is blank, or a value not finite or beyond what a float holds.
    """
    plain: dict[str, float] = {}
    for name, value in rewards.items():
        kind = type(value)
        if kind is not float and kind is not int:
            value = _number(value)
        if not math.isfinite(value):
            raise ValueError(f"the reward {name!r} is {value}, expected a finite number")
        plain[name if type(name) is str else str.__str__(name)] = value
    if not all(map(str.strip, plain)):
        raise ValueError("a reward has a blank name")
    if len(plain) > MAX_REWARD_COMPONENTS:
        raise FrameError(f"{len(plain)} rewards, the limit is {MAX_REWARD_COMPONENTS}.")
    try:
        data = _json.encode(plain)
    except UnicodeEncodeError:
        shown = {bounded(name, MAX_ID_CHARS): value for name, value in plain.items()}
        if len(shown) < len(plain):
            raise ValueError("names of rewards that are not valid Unicode look alike when they are made so") from None
        data = _json.encode(shown)
    if len(data) > MAX_REWARD_BYTES:
        raise FrameError(f"{len(data)} bytes of rewards as JSON, the limit is {MAX_REWARD_BYTES}.")
    return data


def _number(value: object) -> float:
    """The plain number in a subclass, such as numpy.float64, whatever the subclass says that it is."""
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    raise TypeError(f"a reward is a {type(value).__name__}, expected a number")


def has_messages(attempt: RolloutAttempt) -> bool:
    """Whether the attempt may have messages."""
    try:
        return getattr(attempt, "messages", None) is not None
    except Exception:  # noqa: BLE001 - a property of an author's own
        return False


def transcript_message(call: int, rollout_id: str, attempt: RolloutAttempt, limit: int) -> Transcript | None:
    """Return the attempt's messages, when it has any: whole if they fit the limits, else from the start on."""
    try:
        messages = getattr(attempt, "messages", None)
        if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
            return None
        data, omitted = transcript_json(messages, limit)
    except Exception:  # noqa: BLE001 - properties and sequences of an author's own; no transcript is the answer
        return None
    return Transcript(call=call, rollout_id=rollout_id, messages=data, omitted_bytes=omitted)


def transcript_json(messages: Sequence[object], limit: int) -> tuple[bytes, int]:
    """Encode messages as a JSON array, from the start on as far as they fit; say how many bytes do not.

    Args:
        messages: Of any shape; what JSON cannot hold is shown as what it is.
        limit: Bytes of the array; `MAX_TRANSCRIPT_VALUES` bounds it as well.
    """
    pieces: list[bytes] = []
    size, count, omitted = 2, 1, 0
    whole, exact = True, False
    # a sequence may go on without end
    for message in itertools.islice(messages, MAX_TRANSCRIPT_VALUES):
        piece = _message_json(message)
        if whole:
            size += len(piece) + 1
            count += values(piece, exact=exact) + 1
            if count > MAX_TRANSCRIPT_VALUES and not exact:
                # it may have been punctuation inside of texts
                exact = True
                count = 1 + sum(values(kept, exact=True) + 1 for kept in [*pieces, piece])
            whole = size <= limit and count <= MAX_TRANSCRIPT_VALUES
        if whole:
            pieces.append(piece)
        else:
            omitted += len(piece)
    return b"[" + b",".join(pieces) + b"]", omitted


def _message_json(message: object) -> bytes:
    """Encode one message; never raises, since an odd transcript must not change how its rollout ends."""
    try:
        piece = json.dumps(message, default=_shown, allow_nan=False).encode()
        if not is_flat(piece, MAX_TRANSCRIPT_DEPTH - 1):
            raise RecursionError
        # the other end is stricter about lone surrogates
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
