"""What an isolated environment says about itself: what its class declares, how it is confined, and what it has done.

Comes in: the parts that it is made of. Goes out: facts, without any secret. Whatever its workers say is known only
after it was started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from benchmax.envs.environment import Environment
from benchmax.envs.shared_types import RolloutAttempt, ValidationDiagnostic
from runner.artifact import Artifact
from runner.broker import AuditCount, AuditEntry, Broker
from runner.egress import Count, Traffic
from runner.errors import RunnerError
from runner.handle import ExampleHandle
from runner.intermediary import Intermediary
from runner.pool import Pool
from runner.protocol import Ready
from runner.provision import Venv
from runner.redaction import Redactor
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.policy import Credentials, SandboxPolicy
from runner.variables import SecretVariables


class Account(Environment[ExampleHandle, RolloutAttempt]):
    """The part of an `IsolatedEnvironment` that only tells."""

    _artifact: Artifact
    _broker: Broker
    _redactor: Redactor
    _policy: SandboxPolicy
    _secrets: SecretVariables
    _traffic: Traffic
    _gateway: Intermediary | None
    _overlaid: Path | None
    _pool: Pool | None
    _venv: Venv | None

    @property
    def scorable_termination_reasons(self) -> frozenset[str]:  # type: ignore[override]  # a class attribute there
        """Reasons whose rollouts the environment scores.

        Raises:
            RunnerError: the environment has not been started.
        """
        return frozenset(self._said().scorable_termination_reasons)

    @property
    def requires_public_model_endpoint(self) -> bool:
        """Whether the model endpoint has to be reachable from elsewhere.

        Raises:
            RunnerError: the environment has not been started.
        """
        return self._said().requires_public_model_endpoint

    def validation_diagnostics(self) -> Sequence[ValidationDiagnostic]:
        """What the environment finds about its own configuration.

        Raises:
            RunnerError: the environment has not been started.
        """
        clean = self._redactor.clean
        return tuple(
            ValidationDiagnostic(
                finding.severity,
                clean(finding.code),
                clean(finding.message),
                None if finding.location is None else clean(finding.location),
            )
            for finding in self._said().diagnostics
        )

    @property
    def scores_groups(self) -> bool:
        """Whether what a rollout is given may depend on the others of its group.

        Raises:
            RunnerError: the environment has not been started.
        """
        return self._said().scores_groups

    def clean(self, text: str) -> str:
        """Return a text without any secret that was handed out so far, or that its workers were given."""
        return self._redactor.clean(text)

    @property
    def environment_name(self) -> str:
        """Qualified name of the environment's class."""
        return self._said().environment

    @property
    def digest(self) -> str:
        """Digest of the bundle that runs."""
        return self._artifact.digest

    @property
    def venv(self) -> Venv:
        """The venv it runs in.

        Raises:
            RunnerError: the environment has not been started.
        """
        if self._venv is None:
            raise _not_started()
        return self._venv

    @property
    def policy(self) -> SandboxPolicy:
        """How its workers are confined."""
        return self._policy

    @property
    def credentials(self) -> Credentials:
        """What its workers have in the place of credential sources."""
        return "headers" if self._gateway is None else "gateway"

    @property
    def calls_in_flight(self) -> int | None:
        """Requests to models that the gateway is working on; `None` without the gateway."""
        return None if self._gateway is None else self._gateway.calls_in_flight

    @property
    def data(self) -> Literal["real folder", "overlay", "copy"]:
        """What workers have of the folder that was named beforehand, or of any other one."""
        if self._policy.level == "off":
            return "real folder"
        return "copy" if self._overlaid is None else "overlay"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the secret variables that its workers have."""
        return tuple(self._secrets)

    @property
    def connections(self) -> Mapping[Endpoint, Count]:
        """What became of the workers' connections, in a network of their own, by endpoint.

        With the gateway also each endpoint of a model to which that could not connect.
        """
        return {**{endpoint: Count() for endpoint in self._policy.endpoints}, **self._traffic.counts}

    @property
    def audit(self) -> tuple[AuditEntry, ...]:
        """Header requests that were answered or refused, in order; of each verdict the newest."""
        return self._broker.audit

    @property
    def audit_counts(self) -> tuple[AuditCount, ...]:
        """How often which place was asked for and with what verdict, of all header requests there ever were."""
        return self._broker.audit_counts

    @property
    def deaths(self) -> tuple[str, ...]:
        """How workers ended that were not asked to, in order."""
        return () if self._pool is None else tuple(self._pool.deaths)

    def output(self) -> dict[str, str]:
        """Return what the workers wrote to their standard streams outside of rollouts, bounded; dead ones first."""
        return {"stdout": "", "stderr": ""} if self._pool is None else self._pool.output()

    def _running(self) -> Pool:
        if self._pool is None:
            raise _not_started()
        return self._pool

    def _said(self) -> Ready:
        ready = self._running().ready
        if ready is None:
            raise _not_started()
        return ready


def _not_started() -> RunnerError:
    return RunnerError("the environment has not been started.", hint="Use `async with isolate(...) as env:`.")
