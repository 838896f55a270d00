"""Reports to make pages of: of every kind of fact there is, of any size, with any text in every place for text."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from benchmax.bundle.findings.finding import Finding
from runner.report import (
    BundleFacts,
    DatasetFacts,
    EndpointFacts,
    FindingFacts,
    GroupFacts,
    HeaderCountFacts,
    HeaderFacts,
    LogFacts,
    ModelFacts,
    ModelUseFacts,
    OutcomeFacts,
    RefusalFacts,
    Report,
    SandboxFacts,
    VenvFacts,
)
from runner.report.replay import ReplayFacts, ReplayFinding

Shown = TypeVar("Shown", bound=msgspec.Struct)
FIXED = {"judgement", "state"}
"""Of which there are a few words; others are refused where they are read."""

FINDING_TEXTS = ("code", "what", "message", "fix", "file")


def png(width: int = 8, height: int = 8) -> bytes:
    """Return a picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x20\x60\xa0" * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def data_url(data: bytes, kind: str = "png") -> str:
    """Return a URL that holds a picture."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


TOOL_CALL = {"id": "call-1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 12, "b": 12}'}}
TRANSCRIPT: list[Any] = [
    {"role": "system", "content": "Use the tools."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is twelve times twelve?"},
            {"type": "image_url", "image_url": {"url": data_url(png())}},
        ],
    },
    {"role": "assistant", "content": "", "reasoning_content": "A gross.", "tool_calls": [TOOL_CALL]},
    {"role": "tool", "tool_call_id": "call-1", "content": "144"},
    {"role": "assistant", "content": "It is 144.", "refusal": "but reluctantly", "audio": {"note": "more fields"}},
]
USE = ModelUseFacts(
    calls=2, failed=1, prompt_tokens=900, completion_tokens=80, total_tokens=980, estimated=True, seconds=[0.5, 0.25]
)
LOGS = [
    LogFacts(stream="log", text="a tool was called", level=20, logger="calculator.tools"),
    LogFacts(stream="stdout", text="printed on two\nlines\n"),
    LogFacts(stream="stderr", text="complained"),
]
GOOD = OutcomeFacts(
    rollout_id="0-aaaa-0",
    rewards={"correct": 1.0, "brevity": 0.25},
    termination_reason="finished",
    error=None,
    ok=True,
    seconds=2.0,
    began=1.0,
    logs=LOGS,
    transcript=TRANSCRIPT,
    model_use=USE,
    findings=[
        FindingFacts(
            code="capped_output", severity="warning", message="the cap is the trainer's", field="$.cap", call=1
        )
    ],
)
BAD = OutcomeFacts(
    rollout_id="0-aaaa-1",
    rewards={"correct": 0.0},
    termination_reason="rollout_timeout",
    error="The rollout did not end within 600 s.",
    cause="The rollout did not end within 600 s.",
    origin="runner",
    seconds=9.0,
    began=0.5,
    dropped_logs=3,
    transcript=TRANSCRIPT[:2],
    transcript_omitted_bytes=512,
    stack="File tool.py, line 12, in wait",
)


def report(*groups: GroupFacts, **changes: object) -> Report:
    """Return a report that has something of everything, or other groups and facts."""
    full = GroupFacts(position=0, example_id="aaaa", outcomes=[GOOD, BAD], rollouts=3)
    raised = GroupFacts(
        position=1,
        example_id="bbbb",
        outcomes=[],
        rollouts=3,
        error="RemoteError: KeyError: scoring",
        error_code="remote",
        traceback="Traceback: line 3, in score_group",
    )
    fields: dict[str, object] = {
        "format": 1,
        "bundle": BundleFacts(
            digest="d1d2d3d4",
            python_version="3.11",
            benchmax_version="0.2.6",
            pip_dependencies=["sympy>=1.13"],
            environment="Calculator",
        ),
        "venv": VenvFacts(
            key="venvkey",
            path="/cache/venv",
            python="/usr/bin/python3.11",
            packages={"sympy": "1.14.0", "mpmath": "1.3.0"},
            installer="uv 0.12",
            warnings=["an older release was taken"],
        ),
        "sandbox": SandboxFacts(
            level="namespaces",
            network="model-only",
            mechanisms=["mount namespace", "seccomp filter"],
            uid=1000,
            hash_seed="0",
            endpoints=[EndpointFacts(endpoint="judge.example:443", connections=2, failed=1, reason="was refused")],
            secrets=["TOKEN"],
            not_limited=["space on the disk"],
            data="overlay",
            credentials="gateway",
        ),
        "model": ModelFacts(kind="endpoint", name="some-model", base_url="http://127.0.0.1:1/v1"),
        "dataset": DatasetFacts(split="eval", path="/data", examples=2),
        "groups": list(groups) or [full, raised],
        "headers": HeaderFacts(
            answered=4,
            refused=[
                RefusalFacts(
                    binding="judge",
                    rollout_id="0-aaaa-0",
                    base_url="https://elsewhere.example/v1",
                    model="judge-model",
                    reason="no such place",
                )
            ],
            counts=[HeaderCountFacts(binding="judge", origin="https://j.example", verdict="refused", count=1)],
        ),
        "timings": {"start_s": 1.0, "rollouts_s": 10.0, "total_s": 12.0},
        "worker_deaths": ["worker 12 was killed by SIGKILL"],
        "worker_output": {"stdout": "hello from the constructor"},
        "close_error": "closing raised OSError",
        "replay": ReplayFacts(
            path="/records/first",
            outcomes=2,
            equal=1,
            unused_calls=2,
            findings=[
                ReplayFinding(
                    code="replay_mismatch",
                    rollout_id="0-aaaa-1",
                    message="asked otherwise",
                    binding="judge",
                    number=1,
                    path="$.messages[0]",
                    recorded='"before"',
                    now='"after"',
                )
            ],
        ),
        **changes,
    }
    return Report(**fields)  # type: ignore[arg-type]


def many(groups: int, size: int = 4, *, transcripts: bool = True) -> Report:
    """Return a report on many rollouts, no two of which are alike."""
    chance = random.Random(1)
    made = []
    for position in range(groups):
        outcomes = []
        for number in range(size):
            ok = chance.random() < 0.9
            outcomes.append(
                OutcomeFacts(
                    rollout_id=f"{position}-{position * 7919:08d}-{number}",
                    rewards={"correct": float(chance.random() < 0.5), "brevity": chance.random()},
                    termination_reason="finished" if ok else "max_turns",
                    error=None,
                    ok=ok,
                    cause="" if ok else f"after {chance.randrange(100)} turns",
                    seconds=chance.lognormvariate(1, 1),
                    began=position * 0.1,
                    model_use=ModelUseFacts(calls=2, total_tokens=chance.randrange(5000), seconds=[chance.random()]),
                    logs=[LogFacts(stream="stdout", text=f"number {chance.getrandbits(64):x}\n")],
                    transcript=[
                        {"role": "user", "content": f"question {position}"},
                        {"role": "assistant", "content": chance.randbytes(400).hex()},
                    ]
                    if transcripts
                    else None,
                )
            )
        made.append(
            GroupFacts(position=position, example_id=f"{position * 7919:08d}ab", outcomes=outcomes, rollouts=size)
        )
    return report(*made, replay=None, close_error="")


def with_text(original: Shown, change: Callable[[str], str]) -> Shown:
    """Return a report or a verdict in which every text is another one, wherever it is."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, list):
            return [changed(item) for item in value]
        if isinstance(value, dict):
            return {change(key): changed(item) for key, item in value.items()}
        if isinstance(value, msgspec.Struct):
            fields = {name: changed(getattr(value, name)) for name in value.__struct_fields__ if name not in FIXED}
            return msgspec.structs.replace(value, **fields)
        if isinstance(value, Finding):
            return replace(value, **{name: changed(getattr(value, name)) for name in FINDING_TEXTS})
        return value

    made: Shown = changed(original)
    return made


def texts(value: Any) -> Iterator[str]:
    """Return every text in a value that JSON can hold."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts(item)
