"""Whether failures settle as they should: of the model, of its context, of its tool calls, or of a judge.

One rollout of two siblings meets the failure; everything else is answered as in the first pass. So what is different
afterwards is the failure's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from runner.gateway.session import is_chat
from runner.protocol import GROUP_TIMEOUT, ROLLOUT_TIMEOUT
from runner.record import RolloutRecord
from runner.recording.traffic import RecordedCall
from runner.text import one_line
from runner.validation.faults import Failing, Fault, NoContextLeft, Refusal, SenselessToolCalls
from runner.validation.ledger import Ledger
from runner.validation.passes import Asking, Ended, Stage
from runner.validation.siblings import Evidence, normal, quoted
from runner.validation.tape import Playback, Playbacks

CONTEXT_EXCEEDED: Final = "context_exceeded"

MODEL_CHECKS: Final = ("model error 500", "model error 429", "context exceeded", "tool calls")
JUDGE_CHECK: Final = "judge outage"

_RAISED_FIX: Final = (
    "Catch what the client raises and raise RolloutFailure('model_error', …) in its place; a group that raises is lost "
    "whole."
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The first pass, and how it may be made again.

    Args:
        results: How its groups ended.
        calls: What was asked and answered.
        evidence: What else was seen.
        scores_groups: Whether what one rollout is given depends on the others of its group.
    """

    results: Sequence[Ended]
    calls: Sequence[RecordedCall]
    evidence: Evidence
    scores_groups: bool

    def own_calls(self, rollout_id: str) -> list[RecordedCall]:
        """Return the calls in which a rollout asked its own model for an answer."""
        own = (call for call in self.calls if call.rollout_id == rollout_id and call.binding is None)
        return [call for call in own if call.method == "POST" and is_chat(call.route)]

    def judges(self) -> frozenset[str]:
        """Return the bindings that are asked when a conversation is over, and not before."""
        last: dict[str, float] = {}
        for call in self.calls:
            if call.binding is None:
                last[call.rollout_id] = max(call.began, last.get(call.rollout_id, 0.0))
        found = {call.binding for call in self.calls if call.binding and is_chat(call.route)}
        tools = {call.binding for call in self.calls if call.binding and call.began < last.get(call.rollout_id, 0.0)}
        return frozenset(name for name in found if name not in tools)


class Failures:
    """Injects failures, one after the other.

    Args:
        ledger: Takes down what is found.
        stage: Where.
        baseline: The first pass.
        playbacks: Makes exchanges with its answers.
        asking: How the model is asked.
    """

    def __init__(self, ledger: Ledger, stage: Stage, baseline: Baseline, playbacks: Playbacks, asking: Asking) -> None:
        self._ledger = ledger
        self._stage = stage
        self._baseline = baseline
        self._playbacks = playbacks
        self._asking = asking
        self._spread: list[tuple[str, str, str]] = []

    async def check(self) -> None:
        """Make all checks."""
        first = self._baseline.results[0]
        victim = first.group.rollout_ids[0]
        last = max(0, len(self._baseline.own_calls(victim)) - 1)
        faults: list[Fault] = [Refusal(500), Refusal(429), NoContextLeft(last), SenselessToolCalls()]
        for name, fault in zip(MODEL_CHECKS, faults, strict=True):
            if name == "model error 429" and self._ledger.has("failure-hangs"):
                self._ledger.skip(name, "it did not end when the model failed in another way")
                continue
            with self._ledger.checking(name):
                await self._inject(name, fault, first, victim)
        await self._judge()

    def settle(self) -> None:
        """Take down what failures did to siblings, unless these do not even repeat without."""
        if self._ledger.failed("replay", "interleaving") or self._ledger.has("request-differs"):
            return
        for check, name, message in self._spread:
            fix = "Keep rollouts apart, and score a group by those that are left."
            self._find("failure-spreads", check, name, message, fix)

    async def _judge(self) -> None:
        judges = self._baseline.judges()
        asked = [call.rollout_id for call in self._baseline.calls if call.binding in judges]
        if not asked:
            self._ledger.skip(JUDGE_CHECK, "no judge was asked")
            return
        results = self._baseline.results
        chosen = next((one for one in results if {*one.group.rollout_ids} & {*asked}), results[0])
        with self._ledger.checking(JUDGE_CHECK):
            fault = Refusal(500, bindings=judges)
            await self._inject(JUDGE_CHECK, fault, chosen, chosen.group.rollout_ids[0])

    async def _inject(self, check: str, fault: Fault, before: Ended, victim: str) -> None:
        playback = self._playbacks.new(self._stage.env.clean)
        (after,) = await self._stage.together([before.group], Failing(playback, fault, victim), self._asking)
        if not fault.injected:
            self._ledger.skip(check, "it asked nothing that could fail in this way")
            return
        if after.raised is not None:
            self._find("failure-raises", check, victim, f"run_group raised: {quoted(after.raised)}", _RAISED_FIX)
            return
        record = after.records[victim]
        if record.origin == "runner":
            self._ended_by_us(check, record)
            return
        if check == JUDGE_CHECK:
            self._after_outage(before, after)
        elif check == "context exceeded":
            self._after_context(record, playback)
        elif check == "tool calls":
            self._after_tool_calls(record, playback)
        else:
            self._after_refusal(check, record)
        if check != JUDGE_CHECK:
            self._look_at_siblings(check, before, after, victim, playback)

    def _ended_by_us(self, check: str, record: RolloutRecord) -> None:
        cause = quoted(record.error_text())
        if record.outcome.termination_reason in (ROLLOUT_TIMEOUT, GROUP_TIMEOUT):
            fix = "Let the client fail at once or after few retries, and end the rollout with RolloutFailure."
            self._find("failure-hangs", check, record.rollout_id, f"the rollout did not end: {cause}", fix)
        else:
            fix = "Let a failure end its rollout, not the process."
            self._find("failure-kills", check, record.rollout_id, f"its worker ended: {cause}", fix)

    def _after_refusal(self, check: str, record: RolloutRecord) -> None:
        if self._is_scored(record) and record.outcome.rewards:
            self._scored(check, record)

    def _after_outage(self, before: Ended, after: Ended) -> None:
        for name, record in after.records.items():
            # what the judge has no part in may well be there
            as_before = before.records[name].outcome.rewards.keys() <= record.outcome.rewards.keys()
            if self._is_scored(record) and record.outcome.rewards and as_before:
                self._scored(JUDGE_CHECK, record)
                return

    def _after_context(self, record: RolloutRecord, playback: Playback) -> None:
        outcome, who = record.outcome, record.rollout_id
        if normal(outcome.termination_reason) != CONTEXT_EXCEEDED:
            self._ledger.add(
                "context-not-told",
                who,
                f"it ended as {one_line(outcome.termination_reason, 60)} when the context was used up",
                "End as context_exceeded where a request is answered with status 400 and the code "
                "context_budget_exceeded.",
            )
        elif outcome.error is not None and self._baseline.evidence.is_scored(outcome.termination_reason):
            if playback.unanswered:
                self._ledger.skip("context exceeded", "its judge had no answer for a conversation that was cut short")
                return
            self._ledger.add(
                "budget-stop-unscored",
                who,
                f"a conversation that was cut short cannot be scored: {quoted(outcome.error)}",
                "Let scoring take conversations without a last answer; they may get no reward, but not raise.",
            )

    def _after_tool_calls(self, record: RolloutRecord, playback: Playback) -> None:
        if self._is_scored(record):
            return
        if playback.unanswered or any(one.difference is None for one in playback.departures):
            self._ledger.skip("tool calls", "the recorded answers were not enough for the conversation that came of it")
            return
        cause = quoted(record.error_text())
        self._ledger.add(
            "tool-call-ends-rollout",
            record.rollout_id,
            f"it ended as {one_line(record.outcome.termination_reason, 60)}{f': {cause}' if cause else ''}",
            "Answer a call whose tool, arguments or JSON are wrong with a text that says so; models make such calls.",
        )

    def _look_at_siblings(self, check: str, before: Ended, after: Ended, victim: str, playback: Playback) -> None:
        if playback.unanswered:
            return
        for name, record in after.records.items():
            earlier = before.records[name].outcome
            if name == victim:
                continue
            outcome = record.outcome
            same = (outcome.termination_reason, outcome.error) == (earlier.termination_reason, earlier.error)
            # what is scored by comparison may well be another beside fewer
            if same and (self._baseline.scores_groups or outcome.rewards == earlier.rewards):
                continue
            now = outcome.error or f"{one_line(outcome.termination_reason, 60)}, {dict(outcome.rewards)}"
            message = f"its sibling {victim} failed, and it ended otherwise than before: {quoted(now)}"
            self._spread.append((check, name, message))

    def _is_scored(self, record: RolloutRecord) -> bool:
        outcome = record.outcome
        return outcome.error is None and self._baseline.evidence.is_scored(outcome.termination_reason)

    def _scored(self, check: str, record: RolloutRecord) -> None:
        rewards = ", ".join(f"{one_line(name, 40)} {value:g}" for name, value in [*record.outcome.rewards.items()][:5])
        self._find(
            "failure-scored",
            check,
            record.rollout_id,
            f"it ended as {one_line(record.outcome.termination_reason, 60)} with rewards ({rewards})",
            "Raise RolloutFailure where a model or judge fails: training on a made-up reward is worse than on none.",
        )

    def _find(self, code: str, check: str, who: str, message: str, fix: str) -> None:
        """Take a finding down; when another failure has shown it before, the check only fails."""
        if self._ledger.has(code):
            self._ledger.fail(check)
        else:
            self._ledger.add(code, who, f"{check}: {message}", fix, check=check)
