"""Jobs of the kind `validation`: a bundle is judged, as `benchmax validate` does it."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from benchmax.bundle.findings.finding import Finding
from runner.record import RolloutRecord
from runner.report.page import validation_page
from runner.service.executor.outbox import Outbox
from runner.service.executor.telling import Log, Teller
from runner.service.executor.work import Done, Work
from runner.service.offer import asked, bindings
from runner.validation import Validation, ValidationPlan, Verdict
from runner.validation.plan import CONTEXT_TOKENS, ROLLOUT_S, limits_of

CALLS_S: Final = 0.2
"""Between two looks at the calls to models that are under way; each change is an event that is kept."""


async def run_validation(work: Work) -> Done:
    """Judge a bundle; whatever it does is a verdict.

    Raises:
        RunnerError: this machine, or the service's own settings, cannot judge it.
    """
    log = Log(int(work.settings.limits.job_log_bytes))
    teller = Teller(work.outbox, log)

    def on_rollout(name: str, record: RolloutRecord) -> None:
        outcome = record.outcome
        work.outbox.put(
            "rollout",
            {
                "rollout_id": record.rollout_id,
                "reason": outcome.termination_reason,
                "rewards": {component: float(value) for component, value in outcome.rewards.items()},
                "origin": record.origin,
                "seconds": record.seconds,
                "error": record.error_text()[:500],
                "pass": name,
            },
        )
        if name == "rollouts":
            # later passes say the same again
            teller.output_of(record)

    validation = Validation(plan_of(work), cache=work.cache, on_event=teller.on_event, on_rollout=on_rollout, keep=True)
    counting = asyncio.create_task(_tell_calls(validation, work.outbox), name="benchmax-calls")
    try:
        verdict = await validation.run(work.inputs.artifact)
    finally:
        counting.cancel()
    for found in verdict.findings:
        work.outbox.put("finding", _finding(found))
    work.outbox.put("verdict", _summary(verdict))
    results = {"verdict": verdict.to_json(), "report": validation_page(verdict), "logs": log.to_bytes()}
    return Done(judgement=verdict.judgement, results=results)


async def _tell_calls(validation: Validation, outbox: Outbox) -> None:
    """Tell how many calls to models are under way, whenever that is another number than before."""
    told = 0
    while True:
        await asyncio.sleep(CALLS_S)
        if (now := validation.calls_in_flight) != told:
            told = now
            outbox.put("calls", {"in_flight": now})


def plan_of(work: Work) -> ValidationPlan:
    """Turn what a client asked for into a plan.

    Raises:
        UnknownModelError: there is no such model.
    """
    spec, settings, confined = work.spec, work.settings, work.confinement
    model = asked(settings, spec.get("model"))
    rollout_s = min(float(spec.get("timeout_s") or ROLLOUT_S), settings.limits.rollout_s)
    context = min(int(spec.get("max_context_tokens") or CONTEXT_TOKENS), int(settings.limits.context_tokens))
    return ValidationPlan(
        model=model.choice,
        model_auth=model.auth,
        auth=bindings(settings, work.token),
        data=work.inputs.data,
        split=spec.get("split", "eval"),
        sandbox=confined.sandbox,
        network=confined.network,
        limits=limits_of(rollout_s=rollout_s, context_tokens=context),
        provisioning=confined.provisioning,
    )


def _finding(found: Finding) -> dict[str, object]:
    made: dict[str, object] = msgspec.to_builtins(found)
    return made


def _summary(verdict: Verdict) -> dict[str, object]:
    return {
        "judgement": verdict.judgement,
        "errors": len(verdict.errors),
        "warnings": len(verdict.warnings),
        "rollouts": verdict.rollouts,
        "seconds": verdict.seconds,
    }
