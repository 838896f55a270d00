"""Jobs of the kind `batch`: one group of rollouts of the first example, told one by one."""

from __future__ import annotations

from runner.artifact import METADATA_NAME, PICKLE_NAME, read_artifact
from runner.errors import RunnerError
from runner.inspecting.bounds import MAX_METADATA_BYTES, MAX_PICKLE_BYTES
from runner.limits import Limits
from runner.plan import RunPlan
from runner.record import Event, RecordEvent, RolloutRecord
from runner.report.page import page
from runner.report.value import OutcomeFacts
from runner.run import Run
from runner.service.executor.telling import Log, Teller
from runner.service.executor.work import Done, Work
from runner.service.offer import asked, bindings
from runner.validation.plan import MODEL_CALLS

ERROR_CHARS = 2_000
"""Of the text of one error; clients show some hundred."""


async def run_batch(work: Work) -> Done:
    """Run a group of rollouts.

    Raises:
        RunnerError: this machine, or the service's own settings, cannot run it.
    """
    plan = plan_of(work)
    log = Log(int(work.settings.limits.job_log_bytes))
    teller = Teller(work.outbox, log)
    run: Run | None = None

    def on_event(event: Event) -> None:
        teller.on_event(event)
        if isinstance(event, RecordEvent):
            assert run is not None
            work.outbox.put("rollout_completed", completed(event.record, run.outcome(event.record.rollout_id)))

    work.outbox.put("batch_started", {"total": plan.group_size})
    error = ""
    try:
        artifact = read_artifact(
            work.inputs.artifact, most={METADATA_NAME: MAX_METADATA_BYTES, PICKLE_NAME: MAX_PICKLE_BYTES}
        )
        run = Run(artifact, plan, cache=work.cache, on_event=on_event)
        report = await run.run()
        error = next((group.error for group in report.groups if group.error), "")
    except RunnerError as failure:
        if failure.fault != "bundle":
            raise
        error = str(failure)
    found = None if run is None else run.report()
    results = {"logs": log.to_bytes()}
    if found is not None:
        results |= {"report": page(found), "verdict": found.to_json()}
    if error:
        work.outbox.put("worker_error", {"error": error[:ERROR_CHARS]})
    else:
        work.outbox.put("batch_completed", {})
    return Done(error=error[:ERROR_CHARS], results=results)


def plan_of(work: Work) -> RunPlan:
    """Turn what a client asked for into a plan.

    Raises:
        UnknownModelError: there is no such model.
    """
    spec, settings, confined = work.spec, work.settings, work.confinement
    model = asked(settings, spec["model"])
    context = spec.get("max_context_tokens")
    return RunPlan(
        model=model.choice,
        model_auth=model.auth,
        auth=bindings(settings, work.token),
        data=work.inputs.data,
        split=spec["split"],
        max_examples=1,
        group_size=spec["group_size"],
        max_in_flight=spec["max_in_flight"],
        sandbox=confined.sandbox,
        network=confined.network,
        # only so is there something that tracks what is asked
        credentials="gateway",
        limits=Limits(
            context_tokens=None if context is None else min(int(context), int(settings.limits.context_tokens)),
            model_calls_per_rollout=MODEL_CALLS,
            rollout_s=settings.limits.rollout_s,
            scoring_s=settings.limits.rollout_s,
            dataset_s=settings.limits.rollout_s,
        ),
        provisioning=confined.provisioning,
    )


def completed(record: RolloutRecord, facts: OutcomeFacts) -> dict[str, object]:
    """Return what a client is told of a rollout that has ended."""
    return {
        "rollout_id": record.rollout_id,
        "success": facts.ok,
        "rewards": facts.rewards,
        "termination_reason": facts.termination_reason,
        "error": None if facts.ok else (facts.cause or f"it ended as {facts.termination_reason}")[:ERROR_CHARS],
        "contract_errors": [found.to_json() for found in record.diagnostics if found.severity == "error"],
        "contract_warnings": [found.to_json() for found in record.diagnostics if found.severity == "warning"],
    }
