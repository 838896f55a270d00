"""What a verdict says besides findings: which bundle was judged, in what it ran, and its first pass as a report."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from runner.environ import HASH_SEED
from runner.isolated import IsolatedEnvironment
from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    ModelFacts,
    OutcomeFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    endpoint_facts,
    header_facts,
    outcome_facts,
)
from runner.sandbox.levels import what_is_not_limited
from runner.sandbox.machine import this_machine
from runner.sandbox.plan import mechanisms
from runner.validation.passes import Ended
from runner.validation.plan import ValidationPlan
from runner.validation.statics import Looked
from runner.validation.workers import Workers


class Facts:
    """What is known at a moment; `None` is what a validation did not get to.

    Args:
        plan: How it judges.
    """

    def __init__(self, plan: ValidationPlan) -> None:
        self._plan = plan
        self.looked: Looked | None = None
        """The bundle, once it was looked at."""
        self.workers: Workers | None = None
        """What it runs in, once there is anything."""

    def bundle(self) -> BundleFacts | None:
        """Say which bundle it is."""
        if self.looked is None:
            return None
        metadata, env = self.looked.artifact.bundle.metadata, self._env()
        return BundleFacts(
            digest=self.looked.artifact.digest,
            python_version=metadata.python_version,
            benchmax_version=metadata.benchmax_version,
            pip_dependencies=list(metadata.pip_dependencies),
            environment=self.looked.overview.environment if env is None else env.environment_name,
        )

    def venv(self) -> VenvFacts | None:
        """Say which packages it has."""
        venv = None if self.workers is None else self.workers.venv
        if venv is None:
            return None
        return VenvFacts(
            key=venv.key,
            path=_shown(venv.path),
            python=_shown(venv.base_python),
            packages=dict(venv.packages),
            installer=venv.installer,
            warnings=list(venv.warnings),
        )

    def sandbox(self) -> SandboxFacts | None:
        """Say how its first worker is confined."""
        env = self._env()
        if env is None:
            return None
        return SandboxFacts(
            level=env.policy.level,
            network=env.policy.network,
            mechanisms=list(mechanisms(env.policy, this_machine())),
            uid=os.geteuid(),
            hash_seed=HASH_SEED,
            endpoints=endpoint_facts(env.connections),
            secrets=list(env.secrets),
            data=env.data,
            credentials=env.credentials,
            not_limited=list(what_is_not_limited(env.policy.level, self._plan.limits)),
        )

    def model(self) -> ModelFacts | None:
        """Say which model is asked."""
        model = None if self.workers is None else self.workers.model
        if model is None:
            return None
        return ModelFacts(kind=self._plan.model.kind, name=model.model, base_url=model.base_url)

    def dataset(self) -> DatasetFacts | None:
        """Say which examples there are."""
        stages = None if self.workers is None else self.workers.stages
        if stages is None or not stages[0].examples:
            return None
        return DatasetFacts(
            split=self._plan.split, path=_shown(self._plan.data.absolute()), examples=len(stages[0].examples)
        )

    def outcomes(self, result: Ended, began: float | None = None) -> list[OutcomeFacts]:
        """Say how the rollouts of a group ended.

        Args:
            result: The group.
            began: When its pass began, by the monotonic clock.
        """
        env = self._env()
        assert env is not None
        scorable = env.scorable_termination_reasons
        found = []
        for name, record in result.records.items():
            at = None
            if began is not None and record.seconds is not None and name in result.seen:
                at = round(max(0.0, result.seen[name] - record.seconds - began), 3)
            found.append(outcome_facts(record, scorable, began=at))
        return found

    def first_pass(self, results: Sequence[Ended], began: float) -> Report | None:
        """Make the report of a pass that has just ended in the first worker; `None` as long as there can be none.

        Args:
            results: How its groups ended; transcripts and logs beyond the plan's limit are counted as left out.
            began: When it began, by the monotonic clock.
        """
        seconds = time.monotonic() - began
        env, bundle, venv, sandbox = self._env(), self.bundle(), self.venv(), self.sandbox()
        model, dataset = self.model(), self.dataset()
        if not (env and bundle and venv and sandbox and model and dataset):
            return None
        return Report(
            format=FORMAT,
            bundle=bundle,
            venv=venv,
            sandbox=sandbox,
            model=model,
            dataset=dataset,
            groups=self._groups(results, began),
            headers=header_facts(env.audit, env.audit_counts),
            timings={"rollouts_s": seconds},
            worker_deaths=list(env.deaths),
            worker_output=env.output(),
        )

    def _groups(self, results: Sequence[Ended], began: float) -> list[GroupFacts]:
        assert self.workers is not None
        assert self.workers.stages is not None
        examples = self.workers.stages[0].examples
        held = 0
        groups = []
        for result in results:
            outcomes = []
            for record, outcome in zip(result.records.values(), self.outcomes(result, began), strict=True):
                if held + record.held_bytes > self._plan.limits.report_bytes:
                    outcomes.append(outcome.without_output())
                    continue
                held += record.held_bytes
                outcomes.append(outcome)
            raised = result.raised
            groups.append(
                GroupFacts(
                    position=result.group.position,
                    example_id=examples[result.group.position].id,
                    outcomes=outcomes,
                    rollouts=len(result.group.rollout_ids),
                    error=None if raised is None else str(raised),
                    error_code=None if raised is None else raised.code,
                    traceback="" if raised is None else raised.detail,
                )
            )
        return groups

    def _env(self) -> IsolatedEnvironment | None:
        stages = None if self.workers is None else self.workers.stages
        return None if stages is None else stages[0].env


def _shown(path: os.PathLike[str]) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")
