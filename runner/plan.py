"""What a run is to do: the options of one, checked as far as they can be without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmax.auth import ModelAuth
from benchmax.envs.shared_types import DatasetSplit
from runner.broker import AuthValue
from runner.errors import UsageError
from runner.limits import Limits
from runner.models import ModelChoice
from runner.provision.options import ProvisionOptions
from runner.variables import SecretVariables


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What to do with a bundle.

    Args:
        model: Which model to ask.
        model_auth: Its credential source; `None` for the models that need none.
        auth: Bindings for the bundle's `InjectedAuth` names.
        data: Folder the environment's `create_dataset` is given.
        split: Which split.
        max_examples: Examples at most; `None` for all.
        group_size: Rollouts per example.
        max_in_flight: Rollouts at the same time; a larger group still runs whole.
        workers: Worker processes.
        sandbox, network, allow, secrets, credentials: As `isolate` takes them. At the network mode `model-only` the
            model's own server can be reached.
        limits: What the bundle may use.
        python: An interpreter to use instead of the one found.
        provisioning: How packages of venvs are looked for and chosen.
    """

    model: ModelChoice
    model_auth: ModelAuth | None = None
    auth: Mapping[str, AuthValue] = field(default_factory=dict)
    data: Path = Path()
    split: DatasetSplit = "eval"
    max_examples: int | None = None
    group_size: int = 4
    max_in_flight: int = 64
    workers: int = 1
    sandbox: str = "auto"
    network: str = "open"
    allow: tuple[str, ...] = ()
    secrets: SecretVariables = field(default_factory=SecretVariables)
    credentials: str | None = None
    limits: Limits = field(default_factory=Limits)
    python: str | None = None
    provisioning: ProvisionOptions = field(default_factory=ProvisionOptions)

    def __post_init__(self) -> None:
        for name in ("group_size", "max_in_flight", "workers"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError(f"{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.max_examples is not None and self.max_examples < 1:
            raise UsageError(f"max-examples must be at least 1, got {self.max_examples}.")
        check_target(self.model, self.data)


def check_target(model: ModelChoice, data: Path) -> None:
    """Refuse a model and data that nothing could be run with.

    Raises:
        UsageError: the model's address is none, or the data folder is not there.
    """
    if model.base_url is not None:
        _check_base_url(model.base_url)
    if not data.is_dir():
        what = "is not a folder" if data.exists() else "does not exist"
        raise UsageError(
            f"the dataset path {data} {what}.",
            hint="Give --data the folder that holds the environment's data files.",
        )


def _check_base_url(url: str) -> None:
    """Refuse an address that nothing could answer.

    Raises:
        UsageError: it is not the address of a server.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        secret = parts.username is not None or parts.password is not None
    except ValueError:
        usable = secret = False
    if secret:
        raise UsageError(
            "the base URL of the model server holds a user name or a password.",
            hint="Leave it out and name a variable that holds the key: --api-key-env VAR.",
        )
    if not usable or not url.isprintable() or " " in url:
        raise UsageError(
            f"{url!r} is not the base URL of a model server.",
            hint="It looks like https://host/v1 or http://host:8000/v1.",
        )
