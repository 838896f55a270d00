"""What a validation is to do: its options, checked as far as they can be without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmax.auth import ModelAuth
from benchmax.envs.shared_types import DatasetSplit
from runner.broker import AuthValue
from runner.limits import MIB, Limits
from runner.models import ModelChoice, parse_model
from runner.plan import check_target
from runner.provision.options import ProvisionOptions
from runner.variables import SecretVariables

CONTEXT_TOKENS: Final = 2_048
"""Tokens of a conversation unless the plan says otherwise: enough for a few turns, and for an endless one to end."""

ROLLOUT_S: Final = 120.0
"""Seconds of one rollout unless the plan says otherwise; it is to be an example, not the longest one there is."""


MODEL_CALLS: Final = 200
"""Model calls of one rollout: more than a conversation of that many tokens has turns."""

REPORT_BYTES: Final = 16 * MIB
"""What is kept of transcripts and logs: all of some conversations of that many tokens, unless they print much."""


def limits_of(*, rollout_s: float = ROLLOUT_S, context_tokens: int = CONTEXT_TOKENS) -> Limits:
    """Return what a bundle may use while it is judged.

    Args:
        rollout_s: Seconds of one rollout, and of whatever else it is called for.
        context_tokens: Tokens of one rollout's conversation.
    """
    return Limits(
        context_tokens=context_tokens,
        model_calls_per_rollout=MODEL_CALLS,
        report_bytes=REPORT_BYTES,
        rollout_s=rollout_s,
        scoring_s=rollout_s,
        dataset_s=rollout_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPlan:
    """How to judge a bundle.

    Args:
        model: Which model answers; `mock` needs no key and gives the same answers each time.
        model_auth: Its credential source; `None` for the models that need none.
        auth: Bindings for the bundle's `InjectedAuth` names. A judge that is not bound cannot be asked, and then there
            may be no verdict.
        data: Folder the environment's `create_dataset` is given.
        split: Which split.
        sandbox: A level, or `auto`; `None` is `namespaces`, since this runs what somebody else uploaded.
        network: Network mode; `None` is `model-only` at that level, and `open` at one that was named.
        allow, secrets: As `isolate` takes them.
        limits: What the bundle may use.
        python: An interpreter to use instead of the one found.
        provisioning: How packages of venvs are looked for and chosen.

    Raises:
        UsageError: the model's address or the data folder cannot be meant.
    """

    model: ModelChoice = field(default_factory=lambda: parse_model("mock", base_url=None))
    model_auth: ModelAuth | None = None
    auth: Mapping[str, AuthValue] = field(default_factory=dict)
    data: Path = Path()
    split: DatasetSplit = "eval"
    sandbox: str | None = None
    network: str | None = None
    allow: tuple[str, ...] = ()
    secrets: SecretVariables = field(default_factory=SecretVariables)
    limits: Limits = field(default_factory=limits_of)
    python: str | None = None
    provisioning: ProvisionOptions = field(default_factory=ProvisionOptions)

    def __post_init__(self) -> None:
        check_target(self.model, self.data)

    @property
    def level(self) -> str:
        """The sandbox level that is asked for."""
        return self.sandbox or "namespaces"

    @property
    def network_mode(self) -> str:
        """The network mode that is asked for."""
        return self.network or ("model-only" if self.level == "namespaces" else "open")
