"""What a run was told to do, as its record keeps it: everything but secrets.

Comes in: a plan. Goes out: the same plan, from the record and from what a record cannot hold: credentials, and where
things are on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Literal

import msgspec

from benchmax.auth import ModelAuth
from benchmax.envs.shared_types import DatasetSplit
from runner.broker import AuthValue, Binding
from runner.errors import UsageError
from runner.limits import Limits
from runner.models import ModelChoice
from runner.plan import RunPlan
from runner.provision import ProvisionOptions
from runner.recording.data import FileFacts, file_facts
from runner.variables import SecretVariables


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which model was asked; of a script for the mock what it was, since that is asked again when a run goes on."""

    kind: Literal["mock", "local", "endpoint"]
    name: str
    base_url: str | None = None
    script: str | None = None
    script_facts: FileFacts | None = None

    @classmethod
    def of(cls, choice: ModelChoice) -> ModelSettings:
        """Keep a choice.

        Raises:
            UsageError: the mock's script cannot be read.
        """
        script = choice.script
        return cls(
            kind=choice.kind,
            name=choice.model,
            base_url=choice.base_url,
            script=None if script is None else str(script),
            script_facts=None if script is None else file_facts(script),
        )

    def choice(self) -> ModelChoice:
        """Return the choice.

        Raises:
            UsageError: the mock's script is not there any more, or another one.
        """
        script = None if self.script is None else Path(self.script)
        if script is not None and file_facts(script) != self.script_facts:
            raise UsageError(
                f"the model's script {script} is not what it was when the run was recorded.",
                hint="Put the recorded one there, or record the run again.",
            )
        return ModelChoice(kind=self.kind, model=self.name, base_url=self.base_url, script=script)

    @property
    def spelled(self) -> str:
        """The model as `--model` names it."""
        return f"mock:{self.script}" if self.script is not None else "local" if self.kind == "local" else self.name


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was told to do; each is as `RunPlan` has it.

    Args:
        model_auth: Whether the model's own endpoint got credentials.
        bindings: URLs of each binding.
        secrets: Names of the secret variables.
        limits: By name.
        installer, only_binary: What of the packages' options is no part of the lock and changes which venv it is.
    """

    model: ModelSettings
    model_auth: bool
    bindings: dict[str, list[str]]
    split: DatasetSplit
    max_examples: int | None
    group_size: int
    max_in_flight: int
    workers: int
    sandbox: str
    network: str
    allow: list[str]
    secrets: list[str]
    limits: dict[str, float | int | None]
    python: str | None
    installer: Literal["auto", "uv", "pip"]
    only_binary: bool

    @classmethod
    def of(cls, plan: RunPlan) -> Settings:
        """Keep a plan.

        Raises:
            UsageError: the mock's script cannot be read.
        """
        return cls(
            model=ModelSettings.of(plan.model),
            model_auth=plan.model_auth is not None,
            bindings={
                name: list(value.urls) if isinstance(value, Binding) else [] for name, value in plan.auth.items()
            },
            split=plan.split,
            max_examples=plan.max_examples,
            group_size=plan.group_size,
            max_in_flight=plan.max_in_flight,
            workers=plan.workers,
            sandbox=plan.sandbox,
            network=plan.network,
            allow=list(plan.allow),
            secrets=list(plan.secrets),
            limits=asdict(plan.limits),
            python=plan.python,
            installer=plan.provisioning.installer,
            only_binary=plan.provisioning.only_binary,
        )

    def plan(
        self,
        *,
        data: Path,
        model: ModelChoice,
        model_auth: ModelAuth | None,
        auth: Mapping[str, AuthValue],
        secrets: SecretVariables,
        provisioning: ProvisionOptions,
        python: str | None = None,
    ) -> RunPlan:
        """Return the plan again.

        Args:
            data: Where the data is now.
            model: The model.
            model_auth: Its credentials.
            auth: Bindings.
            secrets: Secret variables.
            provisioning: Where packages come from.
            python: An interpreter to use instead of the one that was named then.

        Raises:
            UsageError: the settings are none that a run can have.
        """
        known = {field.name for field in fields(Limits)}
        try:
            limits = Limits(**{name: value for name, value in self.limits.items() if name in known})  # type: ignore[arg-type]  # checked there
        except ValueError as error:
            raise UsageError(f"the record's limits cannot be used: {error}.", hint="Record the run again.") from error
        return RunPlan(
            model=model,
            model_auth=model_auth,
            auth=auth,
            data=data,
            split=self.split,
            max_examples=self.max_examples,
            group_size=self.group_size,
            max_in_flight=self.max_in_flight,
            workers=self.workers,
            sandbox=self.sandbox,
            network=self.network,
            allow=tuple(self.allow),
            secrets=secrets,
            credentials="gateway",
            limits=limits,
            python=python or self.python,
            provisioning=replace(
                provisioning,
                installer=self.installer if provisioning.installer == "auto" else provisioning.installer,
                only_binary=self.only_binary or provisioning.only_binary,
            ),
        )

    def check_credentials(
        self, *, model_auth: ModelAuth | None, auth: Mapping[str, Sequence[str]], secrets: Sequence[str]
    ) -> None:
        """Check that a run that goes on is given the credentials that it had, and no others.

        Args:
            model_auth: Of the model's endpoint.
            auth: URLs of each binding.
            secrets: Names of secret variables.

        Raises:
            UsageError: one is missing, there is one more, or a binding is for another URL.
        """
        if self.model_auth and model_auth is None:
            raise UsageError(
                f"the record was made with a key for {self.model.base_url}, which no record holds.",
                hint="Give it again: --api-key-env VAR.",
            )
        if model_auth is not None and not self.model_auth:
            raise UsageError("the record was made without --api-key-env.", hint="Leave it out.")
        for name, urls in self.bindings.items():
            if name not in auth:
                raise UsageError(
                    f"the record was made with the binding {name}, whose credentials no record holds.",
                    hint=f"Give them again: --auth {name}=env:VAR@{urls[0] if urls else 'URL'}.",
                )
            if list(auth[name]) != urls:
                raise UsageError(
                    f"--auth {name} is for {', '.join(auth[name])}, but the record was made with {', '.join(urls)}.",
                    hint="Give the recorded URL.",
                )
        for name in secrets:
            if name not in self.secrets:
                raise UsageError(f"--secret {name}: the record was made without it.", hint="Leave it out.")
        for name in self.secrets:
            if name not in secrets:
                raise UsageError(
                    f"the record was made with the secret {name}, whose value no record holds.",
                    hint=f"Give it again: --secret {name}=env:VAR.",
                )
        if more := auth.keys() - self.bindings.keys():
            raise UsageError(f"the record was made without --auth {min(more)}.", hint="Leave it out.")
