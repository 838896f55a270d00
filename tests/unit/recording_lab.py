"""What tests of records share: model calls, answers, artifacts and records that are made up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from benchmax.bundle import Bundle, BundleMetadata
from benchmax.envs.shared_types import RolloutOutcome
from runner.artifact import Artifact, write_artifact
from runner.gateway.exchange import Answer, ModelCall, UpstreamError
from runner.models import parse_model
from runner.plan import RunPlan
from runner.record import RolloutRecord
from runner.recording.folder import RecordFolder
from runner.recording.recording import Recording
from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    HeaderFacts,
    ModelFacts,
    OutcomeFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    outcome_facts,
)


def asking(
    number: int = 0,
    *,
    text: str = "hello",
    binding: str | None = None,
    body: bytes | None = None,
    url: str | None = None,
) -> ModelCall:
    """A chat request of rollout `r`."""
    data = (
        json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode() if body is None else body
    )
    return ModelCall(
        session="s",
        rollout_id="r",
        binding=binding,
        number=number,
        method="POST",
        route="chat/completions",
        url=url,
        headers={"user-agent": "test"},
        body=data,
        document=None,
    )


class Said:
    """An answer in pieces, which may break off."""

    def __init__(
        self,
        *pieces: bytes,
        status: int = 200,
        headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),),
        error: UpstreamError | None = None,
    ) -> None:
        self.pieces = pieces
        self.status = status
        self.headers = headers
        self.error = error
        self.closed = False

    async def body(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.error is not None:
            raise self.error

    async def aclose(self) -> None:
        self.closed = True


class Model:
    """An upstream that gives these answers, one after the other."""

    def __init__(self, *answers: Said | Exception) -> None:
        self._answers = list(answers)

    async def send(self, call: ModelCall) -> Answer:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def whole(answer: Answer) -> bytes:
    """Read an answer to its end."""
    return b"".join([piece async for piece in answer.body()])


# -- records --------------------------------------------------------------------------------------------------


def some_artifact(folder: Path) -> Artifact:
    """Write an artifact that nothing could run."""
    metadata = BundleMetadata(
        python_version="3.12", benchmax_version="0.2.6", pip_dependencies=("x>=1",), env_class_source="class E: ..."
    )
    return write_artifact(Bundle(b"pickle", metadata), folder)


def some_plan(data: Path, **options: Any) -> RunPlan:
    """Plan to run it with somebody's model."""
    return RunPlan(model=parse_model("m", base_url="https://models.example/v1"), data=data, **options)


def ended(rollout_id: str, reason: str = "finished", origin: Any = "environment") -> RolloutRecord:
    """What is known of a rollout that has ended."""
    outcome = RolloutOutcome({"x": 1.0}, reason, None)
    return RolloutRecord(rollout_id=rollout_id, example_id="e", outcome=outcome, origin=origin)


def known(record: RolloutRecord) -> OutcomeFacts:
    """The same, as reports have it."""
    return outcome_facts(record, {"finished"})


def report_of(*outcomes: OutcomeFacts) -> Report:
    """A report of one group."""
    return Report(
        format=FORMAT,
        bundle=BundleFacts(digest="d", python_version="3.12", benchmax_version="0.2.6", pip_dependencies=[]),
        venv=VenvFacts(key="k", path="/v", python="/p", packages={"httpx": "1"}, installer="uv", warnings=[]),
        sandbox=SandboxFacts(level="off", network="open", mechanisms=[], uid=0, hash_seed="0"),
        model=ModelFacts(kind="mock", name="mock", base_url="http://127.0.0.1:1/v1"),
        dataset=DatasetFacts(split="eval", path="/d", examples=1),
        groups=[GroupFacts(position=0, example_id="e", rollouts=len(outcomes), outcomes=list(outcomes))],
        headers=HeaderFacts(),
        timings={},
    )


def recorded_run(path: Path, artifact: Artifact, plan: RunPlan, *outcomes: RolloutRecord) -> RecordFolder:
    """Make the record of a run of one example that came to its end."""
    recording = Recording.new(path, artifact, plan)
    recording.dataset(["e"])
    for outcome in outcomes:
        recording.keep(outcome, known(outcome))
    recording.ended(report_of(*map(known, outcomes)))
    return RecordFolder.open(path, claim=False)
