"""Model calls in the report: counted, timed and summed up, and a line for each kind of finding."""

from __future__ import annotations

import json
from typing import Any

from runner.gateway.exchange import Usage
from runner.gateway.findings import Finding
from runner.gateway.session import Collected
from runner.redaction import Redactor
from runner.report import FindingFacts, ModelUseFacts, OutcomeFacts, Report, outcome_facts
from runner.report.model_calls import TIMED_CALLS
from tests.unit.test_record import record, trace
from tests.unit.test_report_table import shown
from tests.unit.test_report_value import GOOD, group, report


def outcome(rollout_id: str, *findings: FindingFacts, use: ModelUseFacts | None = None) -> OutcomeFacts:
    return OutcomeFacts(
        rollout_id=rollout_id,
        rewards={},
        termination_reason="finished",
        error=None,
        ok=True,
        model_use=use,
        findings=[*findings],
    )


def found(code: str, severity: str = "error", message: str = "it is so", call: int = 0) -> FindingFacts:
    return FindingFacts(code=code, severity=severity, message=message, call=call)


def facts(*traces: Any, usage: Usage, findings: tuple[Finding, ...] = ()) -> OutcomeFacts:
    collected = Collected(
        num_calls=len(traces), contract_errors=(), contract_warnings=(), usage=usage, traces=traces, findings=findings
    )
    return outcome_facts(record().with_session(collected, Redactor(), transcript_bytes=1000), ("finished",))


USAGE = Usage(prompt_tokens=5, completion_tokens=2, total_tokens=7, estimated=True)


def test_calls_are_counted_and_those_that_were_answered_are_timed() -> None:
    use = facts(
        trace(seconds=0.25),
        trace(status=503, error="overloaded", seconds=9.0, number=1),
        trace(error="client_gone", seconds=9.0, number=2),
        trace(seconds=0.5004, number=3),
        usage=USAGE,
    ).model_use
    assert use == ModelUseFacts(
        calls=4,
        failed=2,
        prompt_tokens=5,
        completion_tokens=2,
        total_tokens=7,
        estimated=True,
        seconds=[0.25, 0.5],
    )


def test_times_are_those_of_the_first_calls() -> None:
    use = facts(*(trace(seconds=float(i), number=i) for i in range(TIMED_CALLS + 5)), usage=USAGE).model_use
    assert use is not None
    assert use.seconds == [float(i) for i in range(TIMED_CALLS)]
    assert use.calls == TIMED_CALLS + 5


def test_without_the_gateway_nothing_is_said_of_calls() -> None:
    plain = outcome_facts(record(), ("finished",))
    assert plain.model_use is None
    assert plain.findings == []
    assert report(group(0, GOOD)).model_use() is None
    assert "model calls" not in shown(report(group(0, GOOD)))


def test_what_all_rollouts_used_is_one_line() -> None:
    one = ModelUseFacts(calls=2, failed=1, prompt_tokens=1000, completion_tokens=10, total_tokens=1010, seconds=[0.5])
    other = ModelUseFacts(calls=2, prompt_tokens=500, completion_tokens=5, total_tokens=505, seconds=[1.5, 0.25])
    text = shown(report(group(0, outcome("a", use=one), outcome("b", use=other), GOOD, rollouts=3)))
    assert "model calls: 4 (1 failed) · 1,500 prompt and 15 completion tokens · median 0.5 s\n" in text


def test_estimated_tokens_are_said_to_be_about_right_and_without_an_answer_there_is_no_time() -> None:
    use = ModelUseFacts(calls=1, prompt_tokens=3, estimated=True)
    text = shown(report(group(0, outcome("a", use=use))))
    assert "model calls: 1 · about 3 prompt and 0 completion tokens\n" in text


def test_each_kind_of_finding_is_one_line_with_how_many_rollouts_have_it_and_an_example() -> None:
    capped = found("harness_output_cap", "warning", "max_tokens is 9: it is a cap")
    text = shown(
        report(
            group(
                0,
                outcome("0-a-0", capped, found("changed_tools", call=2), found("changed_tools", message="again")),
                outcome("0-a-1", found("changed_tools", message="another one")),
                outcome("0-a-2", capped),
                rollouts=3,
            )
        )
    )
    lines = [line for line in text.splitlines() if line.startswith(("error:", "warning:"))]
    assert lines == [
        "error: changed_tools in 2 rollouts; 0-a-0, call 2: it is so",
        "warning: harness_output_cap in 2 rollouts; 0-a-0, call 0: max_tokens is 9: it is a cap",
    ]


def test_findings_do_not_make_a_run_fail() -> None:
    assert report(group(0, outcome("a", found("changed_tools")))).good


def test_texts_of_findings_cannot_act_on_a_terminal() -> None:
    hostile = found("changed_tools", message="\x1b[31m[bold]x\u202e\n" * 200)
    text = shown(report(group(0, outcome("\x07", hostile))))
    assert r"\x07, call 0: \x1b[31m[bold]x\u202e" in text
    assert all(c == "\n" or c.isprintable() for c in text)
    assert max(map(len, text.splitlines())) < 600


def test_the_json_has_it_and_reads_back_and_older_reports_do_without() -> None:
    finding = Finding(code="rewritten_history", severity="error", field="messages[1]", message="gone", call=3, count=2)
    whole = report(group(0, facts(trace(), usage=USAGE, findings=(finding,))))
    data = json.loads(whole.to_json())["groups"][0]["outcomes"][0]
    assert data["findings"] == [
        {
            "code": "rewritten_history",
            "severity": "error",
            "message": "gone",
            "field": "messages[1]",
            "call": 3,
            "count": 2,
        }
    ]
    assert data["model_use"]["calls"] == 1
    assert Report.from_json(whole.to_json()) == whole
    older = json.loads(whole.to_json())
    for name in ("findings", "model_use"):
        del older["groups"][0]["outcomes"][0][name]
    (read,) = Report.from_json(json.dumps(older).encode()).outcomes
    assert (read.findings, read.model_use) == ([], None)
