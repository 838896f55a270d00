"""The types of a message's fields: numbers and texts with their bounds, and structs that are part of messages.

This file is shipped into the worker, so it needs nothing but the standard library and msgspec.
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import msgspec

from .limits import (
    MAX_ID_CHARS,
    MAX_MODULE_CHARS,
    MAX_PLAIN_CHARS,
    MAX_PLAIN_REWARDS,
    MAX_TEXT_CHARS,
    MAX_TRACEBACK_CHARS,
    MAX_URL_CHARS,
)

CallId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Amount = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]
Url = Annotated[str, msgspec.Meta(max_length=MAX_URL_CHARS)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)]
Traceback = Annotated[str, msgspec.Meta(max_length=MAX_TRACEBACK_CHARS)]
PlainText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PLAIN_CHARS)]
ModulePath = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_MODULE_CHARS)]
Names = Annotated[list[Id], msgspec.Meta(max_length=1000)]
Split = Literal["train", "eval"]
Stream = Literal["log", "stdout", "stderr"]
Origin = Literal["environment", "runner"]


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


class PlainOutcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """How a rollout ended whose rewards are few, short of name and within 64 bits, and that has nothing else to tell.

    `seconds` is how long it ran, unless `rollouts-ended` has told or it was not seen to run.
    """

    termination_reason: PlainText
    rewards: Annotated[dict[PlainText, Int64 | Finite], msgspec.Meta(max_length=MAX_PLAIN_REWARDS)]
    seconds: Seconds | None = None
