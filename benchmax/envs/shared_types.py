"""Data types shared by all environments, validated when constructed. No value is stripped or converted."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar, Union

from benchmax.auth import ModelAuth

__all__ = [
    "DatasetSplit",
    "Example",
    "RewardMap",
    "RolloutAttempt",
    "RolloutFailure",
    "RolloutOutcome",
    "RolloutRequest",
    "ValidationDiagnostic",
]

DatasetSplit: TypeAlias = Literal["train", "eval"]

if TYPE_CHECKING:
    RewardMap: TypeAlias = Mapping[str, float]
elif sys.version_info >= (3, 12):
    from typing import TypeAliasType

    RewardMap = TypeAliasType("RewardMap", Mapping[str, float])
else:

    class _NamedAlias:
        """What `type NAME = VALUE` makes on Python 3.12: an alias that pickles by its name instead of its value."""

        def __init__(self, name: str, value: Any) -> None:
            self.__name__ = name
            self.__value__ = value
            self.__module__ = __name__

        def __reduce__(self) -> str:
            return self.__name__

        def __repr__(self) -> str:
            return self.__name__

        def __or__(self, other: Any) -> Any:
            return Union[self, other]  # noqa: UP007 - the operator is what is being defined

        def __ror__(self, other: Any) -> Any:
            return Union[other, self]  # noqa: UP007 - the operator is what is being defined

    RewardMap = _NamedAlias("RewardMap", Mapping[str, float])

PayloadT_co = TypeVar("PayloadT_co", covariant=True)
DataT = TypeVar("DataT")


def _require_text(value: object, owner: str, name: str) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{owner}.{name} must be a non-empty string, got {value!r}.")


def _require_error(value: object, owner: str) -> None:
    if value is not None and (not isinstance(value, str) or not value.strip()):
        raise ValueError(f"{owner}.error must be None or a non-empty string, got {value!r}.")


def _require_rewards(rewards: object, owner: str) -> None:
    # the plain types first: asking an abstract class takes longer than all other checks of a rollout
    if type(rewards) is not dict and not isinstance(rewards, Mapping):
        raise TypeError(
            f"{owner}.rewards must be a mapping of reward names to numbers, such as "
            f"{{'correct': 1.0}}, got {type(rewards).__name__}."
        )
    for key, value in rewards.items():
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{owner}.rewards keys must be non-empty strings, got {key!r}.")
        if type(value) is not float and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ValueError(
                f"{owner}.rewards[{key!r}] must be numeric (int or float, not bool), "
                f"got {type(value).__name__}; convert it with float()."
            )
        if not math.isfinite(value):
            raise ValueError(f"{owner}.rewards[{key!r}] must be finite, got {value!r}.")


def _accept_subscription(owner: type[DataT]) -> type[DataT]:
    """Let `Example[int](...)` construct: it tries to set an attribute, and slotted frozen classes trip over that.

    Before Python 3.13 their `__setattr__` raises TypeError for a name that is no field (python/cpython#90562), which
    typing does not expect; FrozenInstanceError it does.
    """

    def refuse(self: object, name: str, *_: object) -> NoReturn:
        raise FrozenInstanceError(f"{type(self).__name__} is immutable: cannot assign or delete {name!r}.")

    owner.__setattr__ = owner.__delattr__ = refuse  # type: ignore[method-assign]
    return owner


@_accept_subscription
@dataclass(frozen=True, slots=True)
class Example(Generic[PayloadT_co]):
    """One item of a dataset.

    Args:
        id: Identity of the example; equal ids mean the same task. `canonical_example_id` makes one from content.
        payload: Whatever the environment needs to run a rollout, stored as it is.

    Raises:
        ValueError: `id` is blank.
    """

    id: str
    payload: PayloadT_co

    def __post_init__(self) -> None:
        _require_text(self.id, "Example", "id")


@_accept_subscription
@dataclass(frozen=True, slots=True)
class RolloutRequest(Generic[PayloadT_co]):
    """One rollout to run.

    Args:
        rollout_id: Name of the rollout, unique within its group.
        example: The example to run on.
        model: Name of the model as the server knows it.
        base_url: Base URL of an OpenAI-compatible API.
        model_auth: Credential source for that API; left out of `repr`.
        split: Split the example comes from.

    Raises:
        ValueError: `rollout_id`, `model` or `base_url` is blank, or `split` is unknown.
        TypeError: `model_auth` is not a `ModelAuth`.
    """

    rollout_id: str
    example: Example[PayloadT_co]
    model: str
    base_url: str
    model_auth: ModelAuth = field(repr=False)
    split: DatasetSplit = "train"

    def __post_init__(self) -> None:
        _require_text(self.rollout_id, "RolloutRequest", "rollout_id")
        _require_text(self.model, "RolloutRequest", "model")
        _require_text(self.base_url, "RolloutRequest", "base_url")
        # the check of a runtime protocol costs ten times everything else here, so a method of the class settles it
        has_method = callable(getattr(type(self.model_auth), "headers_for_request", None))
        if not has_method and not isinstance(self.model_auth, ModelAuth):
            raise TypeError(
                f"RolloutRequest.model_auth must be a ModelAuth, got {type(self.model_auth).__name__}; "
                "use StaticBearerAuth(token) or an object with an async headers_for_request(context) method."
            )
        if self.split not in ("train", "eval"):
            raise ValueError(f"RolloutRequest.split must be 'train' or 'eval', got {self.split!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutAttempt:
    """How one rollout ended, before group scoring. Subclass it to carry what scoring needs.

    Args:
        rollout_id: Id of the request it answers.
        termination_reason: Why it ended; an open vocabulary, `finished` being the good end.
        rewards: Rewards of its own by name; `None` means not scored yet.
        error: What went wrong, if anything did.

    Raises:
        ValueError: a text is blank, or a reward has a blank name, is not a number or is not finite.
        TypeError: `rewards` is not a mapping.
        OverflowError: a reward is an integer beyond the range of a float.
    """

    rollout_id: str
    termination_reason: str
    rewards: RewardMap | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        _require_text(self.rollout_id, owner, "rollout_id")
        _require_text(self.termination_reason, owner, "termination_reason")
        if self.rewards is not None:
            _require_rewards(self.rewards, owner)
        _require_error(self.error, owner)


@dataclass(frozen=True, slots=True)
class RolloutOutcome:
    """The final result of one rollout.

    Args:
        rewards: Rewards by name; may be empty.
        termination_reason: Why the rollout ended.
        error: What went wrong, if anything did.

    Raises:
        ValueError: a text is blank, or a reward has a blank name, is not a number or is not finite.
        TypeError: `rewards` is not a mapping.
        OverflowError: a reward is an integer beyond the range of a float.
    """

    rewards: RewardMap
    termination_reason: str
    error: str | None = None

    def __post_init__(self) -> None:
        _require_rewards(self.rewards, "RolloutOutcome")
        _require_text(self.termination_reason, "RolloutOutcome", "termination_reason")
        _require_error(self.error, "RolloutOutcome")


class RolloutFailure(RuntimeError):  # noqa: N818 - the published name
    """Raised by an environment when a rollout failed in a way that is part of operation, not a defect.

    Args:
        termination_reason: Reason the outcome gets; anything but `finished`.
        message: What happened; becomes the outcome's error.

    Raises:
        ValueError: a text is blank, or the reason is `finished`.
    """

    def __init__(self, termination_reason: str, message: str) -> None:
        _require_text(termination_reason, type(self).__name__, "termination_reason")
        if termination_reason == "finished":
            raise ValueError(
                f"{type(self).__name__}.termination_reason cannot be 'finished'; return an attempt instead of raising."
            )
        _require_text(message, type(self).__name__, "message")
        super().__init__(message)
        self.termination_reason = termination_reason


@dataclass(frozen=True, slots=True)
class ValidationDiagnostic:
    """Something an environment wants to say about its own configuration before it runs.

    Args:
        severity: Whether it prevents a useful run.
        code: Stable name of the kind of finding.
        message: The finding, for a person.
        location: Where it is, if that can be said.
    """

    severity: Literal["warning", "error"]
    code: str
    message: str
    location: str | None = None
