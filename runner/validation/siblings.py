"""Whether rollouts came to an end that is scored: what is wrong with the first pass, and what could not be judged.

Whose fault it was is told from what this process saw of a rollout: its calls of the model, the header requests that
were refused, the end of its worker. What an error says is quoted, not believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmax.bundle.findings.finding import Finding
from benchmax.envs.environment import Environment
from runner.errors import RemoteError, RunnerError, WorkerLostError
from runner.gateway.exchange import CallTrace
from runner.protocol import GROUP_TIMEOUT, ROLLOUT_TIMEOUT, WORKER_LOST
from runner.record import RolloutRecord
from runner.recording.matching import GROUP
from runner.text import one_line
from runner.validation.bindings import Bindings
from runner.validation.codes import KINDS
from runner.validation.imports import missing_module, undeclared
from runner.validation.passes import Ended

COMMON_REASONS: Final = Environment.scorable_termination_reasons
"""Reasons that every trainer takes for an end that is scored."""

_INVALID_REWARD: Final = re.compile(
    r"\.rewards(?:\[.{1,200}\] must be (?:numeric|finite)| keys must be| must be a mapping)"
)
_THEIRS: Final = frozenset({0, 401, 403, 404, 408, 425, 429, *range(500, 600)})
"""Statuses of answers that say something of whoever answers, not of what was asked."""

_OURS: Final = frozenset(
    {"invalid_session_key", "session_over", "not_found", "method_not_allowed", "invalid_request", "client_gone"}
)
"""Codes of answers that the gateway gives to what no client of a model should ask."""

_REPEATED: Final = frozenset({"rollout-error", "not-scored", "no-model-call"})
"""What may be a matter of luck, so that it is tried once more."""

JUDGE_ERROR: Final = "judge_error"
"""The reason in which the library's own judges end a rollout whose judge gave no verdict."""

_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with one rollout, or with one group."""

    code: str
    who: str
    message: str
    fix: str
    module: str = ""


@dataclass(slots=True)
class Judged:
    """What the outcomes of a pass come to.

    Args:
        problems: What is wrong.
        blocked: Why nothing can be said of the first siblings: their model or judge could not be asked.
    """

    problems: list[Problem] = field(default_factory=list)
    blocked: str = ""

    @property
    def worth_repeating(self) -> bool:
        """Whether all of it may have been bad luck."""
        return bool(self.problems) and all(problem.code in _REPEATED for problem in self.problems)

    def findings(self) -> Iterator[Finding]:
        """Give one finding for each kind of problem."""
        kinds: dict[tuple[str, str], list[Problem]] = {}
        for problem in self.problems:
            kinds.setdefault((problem.code, problem.module), []).append(problem)
        for (code, module), alike in kinds.items():
            first = alike[0]
            if module:
                yield undeclared(module, what=first.who, when="when it runs")
                continue
            more = len(alike) - 1
            others = f" (and {more} more like it)" if more else ""
            yield Finding(
                severity=KINDS[code].severity,
                code=code,
                what=first.who,
                message=f"{first.message}{others}",
                fix=first.fix,
            )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen beside the outcomes.

    Args:
        scorable: The environment's scorable reasons.
        bound: Calls under bindings that are over.
        bindings: Says what could not be asked under a binding.
    """

    scorable: frozenset[str]
    bound: Sequence[CallTrace]
    bindings: Bindings

    def is_scored(self, reason: str) -> bool:
        """Whether the environment scores a rollout that ends in a reason."""
        return reason in self.scorable or normal(reason) in self.scorable


def normal(reason: str) -> str:
    """Return a reason as it is compared."""
    return reason.strip().lower()


def judge(results: Iterable[Ended], evidence: Evidence) -> Judged:
    """Look at every outcome of a pass."""
    judged = Judged()
    for number, result in enumerate(results):
        blocked = ""
        if result.raised is not None:
            if isinstance(result.raised, RemoteError):
                blocked = evidence.bindings.trouble(result.raised.remote_message)
            if not blocked:
                judged.problems.append(_raised(result, result.raised))
        for record in result.records.values():
            trouble = _trouble(record, evidence)
            problem = _problem(record, evidence)
            if problem is not None and trouble:
                blocked = blocked or trouble
            elif problem is not None:
                judged.problems.append(problem)
        # the first two siblings have to be judged; of others there may be enough left
        judged.blocked = judged.blocked or ("" if number else blocked)
    # collateral of a worker's end says nothing new
    if any(problem.code == "worker-died" for problem in judged.problems):
        judged.problems = [one for one in judged.problems if one.code != "group-raises"]
    return judged


def warnings(results: Sequence[Ended], evidence: Evidence) -> Iterator[Finding]:
    """Give what is doubtful about rollouts that are well."""
    records = [record for result in results for record in result.records.values()]
    if records and all(record.num_calls == 1 for record in records):
        yield _finding(
            "single-call",
            records[0].rollout_id,
            "no rollout asked the model more than once, so that turns after the first were not tried",
            "If conversations have more turns, give a model that goes on: --model mock:SCRIPT or --base-url.",
        )
    others = {record.outcome.termination_reason: record for record in records}
    for reason, record in others.items():
        if normal(reason) not in COMMON_REASONS and evidence.is_scored(reason):
            yield _finding(
                "reason-of-its-own",
                record.rollout_id,
                f"it ended as {one_line(reason, 60)}, which this environment scores and a trainer need not know",
                f"Where it can be told so, end in one of {', '.join(sorted(COMMON_REASONS))}.",
            )


def quoted(error: RunnerError | str) -> str:
    """Return what an error says, in one line."""
    return one_line(error.message if isinstance(error, RunnerError) else error, _SHOWN).rstrip(".")


def _raised(result: Ended, error: RunnerError) -> Problem:
    who = result.group.rollout_ids[0]
    if isinstance(error, WorkerLostError) or not isinstance(error, RemoteError):
        return Problem(
            "worker-died", who, quoted(error), error.hint or "Find what ends the process: --show-output of a run."
        )
    module = missing_module(error)
    if module:
        return Problem("undeclared-dependency", who, quoted(error), "", module)
    if error.remote_type in ("ValueError", "TypeError") and _INVALID_REWARD.search(error.remote_message):
        return Problem(
            "reward-invalid",
            who,
            quoted(error),
            "Return finite numbers under names; raise RolloutFailure if there is none.",
        )
    return Problem(
        "group-raises",
        who,
        quoted(error),
        "Mend the code that raises; a failure that is to be expected is a RolloutFailure, which costs one rollout.",
    )


def _problem(record: RolloutRecord, evidence: Evidence) -> Problem | None:
    outcome, who = record.outcome, record.rollout_id
    reason, cause = outcome.termination_reason, record.error_text()
    if record.origin == "runner":
        if reason in (ROLLOUT_TIMEOUT, GROUP_TIMEOUT):
            return Problem(
                "rollout-timeout", who, quoted(cause), "Mend what waits, bound it, or allow more time: --timeout S."
            )
        if reason == WORKER_LOST:
            return None
        return Problem("worker-died", who, quoted(cause), "Find what ends the process: benchmax run --show-output.")
    if outcome.error is not None:
        module = missing_module(outcome.error)
        if module:
            return Problem("undeclared-dependency", who, quoted(cause), "", module)
        return Problem(
            "rollout-error",
            who,
            f"it ended as {one_line(reason, 60)} with an error: {quoted(outcome.error)}",
            "Mend the code that raised; its traceback: benchmax run --show-output.",
        )
    if not evidence.is_scored(reason):
        because = f": {quoted(cause)}" if cause else ""
        module = missing_module(cause)
        if module:
            return Problem("undeclared-dependency", who, quoted(cause), "", module)
        return Problem(
            "not-scored",
            who,
            f"it ended as {one_line(reason, 60)}, which is not scored{because}",
            "Mend what ends it so, or name the reason among scorable_termination_reasons.",
        )
    if not record.num_calls:
        return Problem(
            "no-model-call",
            who,
            "it ended without having asked the model that its request names",
            "Ask request.model at request.base_url with the headers of request.model_auth.",
        )
    return None


def _trouble(record: RolloutRecord, evidence: Evidence) -> str:
    """Say why a rollout's end may be nobody's fault here: its model or its judge could not be asked."""
    for trace in record.calls:
        if _failed(trace):
            return f"the model did not answer: {_answer(trace)}"
    trouble = evidence.bindings.trouble(record.error_text())
    if trouble:
        return trouble
    for trace in evidence.bound:
        name = one_line(trace.call.binding or "", 60)
        if trace.call.rollout_id != record.rollout_id and not trace.call.rollout_id.startswith(GROUP):
            continue
        if _failed(trace):
            return f"what is bound to {name!r} did not answer: {_answer(trace)}"
        if normal(record.outcome.termination_reason) == JUDGE_ERROR:
            return f"what is bound to {name!r} gave no answer that could be used: {quoted(record.error_text())}"
    return ""


def _failed(trace: CallTrace) -> bool:
    return trace.call.method == "POST" and trace.status in _THEIRS and (trace.error or "") not in _OURS


def _answer(trace: CallTrace) -> str:
    what = f"status {trace.status}" if trace.status else "no answer"
    return f"{what}{f', {one_line(trace.error, 60)}' if trace.error else ''}"


def _finding(code: str, what: str, message: str, fix: str) -> Finding:
    return Finding(severity=KINDS[code].severity, code=code, what=what, message=message, fix=fix)
