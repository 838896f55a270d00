"""Runs that are recorded, ended in the middle, gone on with, replayed and compared, as a person does at a terminal."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import http.server
import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmax.bundle import Bundle
from runner.artifact import read_artifact, write_artifact
from runner.errors import RunnerError
from runner.models import parse_model
from runner.provision import Cache, make_lock
from runner.recording.course import Course
from runner.run import Run, RunPlan
from runner.sandbox import probe
from tests.conftest import require
from tests.integration.command_line import CommandLine, Finished
from tests.integration.environments import recorded
from tests.integration.isolation import bundled

pytestmark = pytest.mark.integration

KEY = "sk-sentinel-0815-4711"
OFF = ("--sandbox", "off")
"""Where rollouts note themselves in a file of the test's."""


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    command = CommandLine(shared_cache, tmp_path)
    (command.cwd / "data").mkdir()
    (command.cwd / "data" / "words.txt").write_text("count")
    return command


def notes(benchmax: CommandLine) -> collections.Counter[str]:
    path = benchmax.cwd.parent / "notes"
    return collections.Counter(path.read_text().split() if path.exists() else [])


def prepared(benchmax: CommandLine, name: str = "Noted", **arguments: Any) -> None:
    """Make an artifact with a lock beside it, which spares each record making one."""
    if name != "Chatting":
        arguments = {"notes": str(benchmax.cwd.parent / "notes"), **arguments}
    bundle: Bundle = bundled(recorded, name, **arguments)
    write_artifact(bundle, benchmax.cwd / "artifact")
    (benchmax.cwd / "artifact" / "pylock.toml").write_text(lock_of(benchmax.cache))


@functools.cache
def lock_of(cache: Path) -> str:
    metadata = bundled(recorded, "Chatting").metadata
    return asyncio.run(make_lock(metadata, cache=Cache(cache)))[0].text


def record(benchmax: CommandLine, *options: str, env: dict[str, str] | None = None) -> Finished:
    return benchmax("run", "artifact", "--data", "data", "--record", "out", *options, makes="out", env=env)


def report(benchmax: CommandLine, path: str = "out/report.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((benchmax.cwd / path).read_bytes())
    return found


def outcomes(found: dict[str, Any]) -> dict[str, Any]:
    listed = [outcome for group in found["groups"] for outcome in group["outcomes"]]
    kept = ("rewards", "termination_reason", "error", "transcript")
    assert len(listed) == len({outcome["rollout_id"] for outcome in listed})
    return {outcome["rollout_id"]: {name: outcome[name] for name in kept} for outcome in listed}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def killed(benchmax: CommandLine, *command: str, when: Callable[[], bool]) -> None:
    """Run a command until something is so, and end it at once, as nothing else can."""
    with benchmax.running(*command, makes="out") as running:
        while not when():
            assert running.process.poll() is None, running.finish().err
            time.sleep(0.005)
        running.send(signal.SIGKILL)
        running.process.wait()
        # what it would have removed
        for path in benchmax.tmp.iterdir():
            shutil.rmtree(path, ignore_errors=True)


Answers = Callable[[str], tuple[int, dict[str, str], Any]]


class Endpoint(http.server.BaseHTTPRequestHandler):
    """A model that answers as it is told to, and says back which key it was given."""

    answers: Answers
    asked: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said = body["messages"][-1]["content"]
        self.asked.append(said)
        status, headers, answer = self.answers(said)
        kind = "application/json"
        if isinstance(answer, str):
            message = {"role": "assistant", "content": f"{answer} {self.headers['authorization']}"}
            answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
            if body.get("stream"):
                kind = "text/event-stream"
                answer |= {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": message}]}
            else:
                answer |= {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        text = json.dumps(answer)
        data = (f"data: {text}\n\ndata: [DONE]\n\n" if kind == "text/event-stream" else text).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            **headers,
            "X-Request-Id": f"for {self.headers['authorization']}",
        }.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        # whoever asked may have gone meanwhile
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(data)

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def endpoint(answers: Answers) -> Iterator[tuple[str, list[str]]]:
    """Serve a model; give its base URL and what it is asked."""
    handler: type[Endpoint] = type("Served", (Endpoint,), {"answers": staticmethod(answers), "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", handler.asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- record and replay ----------------------------------------------------------------------------------------


def test_a_recorded_run_is_replayed_with_the_same_outcomes_and_no_model(benchmax: CommandLine) -> None:
    prepared(benchmax, "Compared")
    first = record(benchmax, "--group-size", "2", *OFF)
    assert "4 ok · 0 failed" in first.good()
    before = {path: path.read_bytes() for path in (benchmax.cwd / "out").rglob("*") if path.is_file()}
    replay = benchmax("run", "--replay", "out", "--json-out", "replay.json", makes="replay.json")
    assert "replay: 4 of 4 outcomes are as recorded" in replay.good()
    assert "starting the server" not in replay.err
    assert outcomes(report(benchmax, "replay.json")) == outcomes(report(benchmax))
    assert before == {path: path.read_bytes() for path in before}
    assert benchmax("diff", "out", "replay.json").good() == "equal: 4 rollouts compared\n"


def test_a_record_has_all_that_a_replay_needs_and_is_nobody_elses_to_read(benchmax: CommandLine) -> None:
    prepared(benchmax)
    record(benchmax, "--group-size", "1").good()
    out = benchmax.cwd / "out"
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in out.iterdir()} == {
        "record.json", "artifact", "pylock.toml", "outcomes.jsonl", "calls.jsonl", "report.json",
    }  # fmt: skip
    for name in ("env-cls.pkl", "env-metadata.json"):
        assert (out / "artifact" / name).read_bytes() == (benchmax.cwd / "artifact" / name).read_bytes()
    facts = json.loads((out / "record.json").read_bytes())
    assert facts["data"].keys() == {"words.txt"}
    assert facts["attempts"][0]["packages"] == report(benchmax)["venv"]["packages"]
    shutil.rmtree(benchmax.cwd / "artifact")
    benchmax("run", "--replay", "out").good()


def test_a_replay_that_goes_another_way_says_where_and_fails(benchmax: CommandLine) -> None:
    prepared(benchmax)
    record(benchmax, "--group-size", "1").good()
    path = benchmax.cwd / "out" / "calls.jsonl"
    path.write_text(path.read_text().replace("count 1", "count two"))
    finished = benchmax("run", "--replay", "out", "--json")
    assert finished.code == 1
    replay = json.loads(finished.out)["replay"]
    assert (replay["outcomes"], replay["equal"], replay["unused_calls"]) == (2, 1, 1)
    mismatch, outcome = replay["findings"]
    assert (mismatch["code"], mismatch["path"]) == ("replay_mismatch", "$.messages[0].content")
    assert (mismatch["recorded"], mismatch["now"]) == ('"count two"', '"count 1"')
    assert (outcome["code"], outcome["path"]) == ("replay_outcome", "$.termination_reason")
    assert 'recorded "count two", now "count 1"' in finished.err


def test_retries_streams_and_calls_made_at_once_are_replayed_as_they_were(benchmax: CommandLine) -> None:
    refused: set[str] = set()

    def answers(said: str) -> tuple[int, dict[str, str], Any]:
        if said in refused:
            return 200, {}, said[::-1]
        refused.add(said)
        return 429, {"Retry-After-Ms": "1"}, {"error": {"message": "slow down", "code": "rate_limit"}}

    prepared(benchmax, "Chatting")
    with endpoint(answers) as (base_url, asked):
        record(benchmax, "--group-size", "2", "--model", "m", "--base-url", base_url).good()
    calls = lines(benchmax.cwd / "out" / "calls.jsonl")
    # of the second sibling nothing is refused
    assert collections.Counter(call["status"] for call in calls) == {429: 4, 200: 8}
    assert len(calls) == len(asked)
    # the server is gone
    replay = benchmax("run", "--replay", "out")
    assert "2 of 2 outcomes are as recorded" in replay.good()
    assert "not asked for" not in replay.out


def test_no_key_is_in_a_record_whatever_the_server_says_back(benchmax: CommandLine) -> None:
    prepared(benchmax)
    with endpoint(lambda said: (200, {}, "your header is")) as (base_url, _):
        options = ("--model", "m", "--base-url", base_url, "--api-key-env", "KEY", "--secret", "TOKEN=env:KEY")
        record(benchmax, "--group-size", "1", *options, env={"KEY": KEY}).good()
    for path in (benchmax.cwd / "out").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path
    # neither is needed again
    assert "2 of 2 outcomes are as recorded" in benchmax("run", "--replay", "out").good()


def test_what_a_judge_is_asked_under_a_binding_is_recorded_too(benchmax: CommandLine) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    with endpoint(lambda said: (200, {}, f"about {said}:")) as (base_url, asked):
        # the sandbox shows no folder of the test's
        prepared(benchmax, "Compared", notes="/dev/null", judge_url=base_url)
        options = ("--model", "m", "--base-url", base_url, "--auth", f"judge=env:KEY@{base_url}")
        record(benchmax, "--group-size", "2", "--network", "model-only", *options, env={"KEY": KEY}).good()
        # two groups: an answer and a judgement of each rollout, and one that compares them
        assert len(asked) == 2 * (2 * 2 + 1)
    assert KEY.encode() not in (benchmax.cwd / "out" / "calls.jsonl").read_bytes()
    finished = benchmax("run", "--replay", "out", "--json-out", "replay.json", makes="replay.json")
    assert "4 of 4 outcomes are as recorded" in finished.good()
    assert "not asked for" not in finished.out
    assert outcomes(report(benchmax, "replay.json")) == outcomes(report(benchmax))


# -- going on -------------------------------------------------------------------------------------------------


def test_a_run_of_200_that_is_killed_in_the_middle_is_gone_on_with(benchmax: CommandLine) -> None:
    prepared(benchmax, size=50)
    out = benchmax.cwd / "out"
    command = ("run", "artifact", "--data", "data", "--record", "out", *OFF, "--max-in-flight", "8")
    killed(benchmax, *command, when=lambda: len(lines_of(out / "outcomes.jsonl")) >= 100)
    finished_before = {line["outcome"]["rollout_id"] for line in lines(out / "outcomes.jsonl")}
    assert 100 <= len(finished_before) < 200
    assert not (out / "report.json").exists()
    benchmax("run", "--replay", "out").error(2)
    assert "200 ok · 0 failed · 0 missing of 200" in benchmax("run", "--resume", "out").good()
    ran = notes(benchmax)
    assert {name for name in finished_before if ran[name] != 1} == set()
    assert len(ran) == len(outcomes(report(benchmax))) == 200
    # those that were under way, and no others, ran once more
    assert sum(ran.values()) - 200 <= 8
    assert {line["attempt"] for line in lines(out / "outcomes.jsonl")} == {1, 2}
    assert "200 of 200 outcomes are as recorded" in benchmax("run", "--replay", "out").good()
    again = benchmax("run", "--resume", "out")
    assert "nothing is left to do" in again.err
    assert "200 ok" in again.good()


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def test_groups_that_are_scored_together_run_again_as_a_whole(benchmax: CommandLine) -> None:
    prepared(benchmax, "Compared", size=12)
    out = benchmax.cwd / "out"
    command = (
        "run",
        "artifact",
        "--data",
        "data",
        "--record",
        "out",
        *OFF,
        "--group-size",
        "3",
        "--max-in-flight",
        "3",
    )
    killed(benchmax, *command, when=lambda: len(lines_of(out / "outcomes.jsonl")) >= 12)
    # as if it had been killed between two outcomes of a group
    written = lines_of(out / "outcomes.jsonl")
    kept = written[: len(written) // 3 * 3 - 1]
    (out / "outcomes.jsonl").write_bytes(b"".join(line + b"\n" for line in kept))
    before = notes(benchmax)
    assert "36 ok · 0 failed · 0 missing of 36" in benchmax("run", "--resume", "out").good()
    found = outcomes(report(benchmax))
    assert {outcome["rewards"]["siblings"] for outcome in found.values()} == {3.0}
    whole = {name for name, count in collections.Counter(
        json.loads(line)["outcome"]["rollout_id"].rpartition("-")[0] for line in kept
    ).items() if count == 3}  # fmt: skip
    assert len(whole) >= 3
    ran = notes(benchmax)
    assert {name for name in ran if ran[name] != before[name] and name.rpartition("-")[0] in whole} == set()
    assert "36 of 36 outcomes are as recorded" in benchmax("run", "--replay", "out").good()


def test_what_failed_for_reasons_of_infrastructure_runs_again_and_nothing_else(benchmax: CommandLine) -> None:
    broken = True

    def answers(said: str) -> tuple[int, dict[str, str], Any]:
        if broken and said in ("count 1", "count 3"):
            return 400, {}, {"error": {"message": "out of order", "code": "broken"}}
        return 200, {}, "yes"

    prepared(benchmax, size=4)
    with endpoint(answers) as (base_url, asked):
        first = record(benchmax, "--group-size", "1", "--model", "m", "--base-url", base_url, *OFF)
        assert first.code == 1
        assert "2 ok · 2 failed" in first.out
        asked.clear()
        broken = False
        assert "4 ok · 0 failed" in benchmax("run", "--resume", "out").good()
        assert sorted(asked) == ["count 1", "count 3"]
    assert set(notes(benchmax).values()) == {1}
    assert "4 of 4 outcomes are as recorded" in benchmax("run", "--replay", "out").good()


def test_a_run_that_was_interrupted_in_order_is_gone_on_with_and_needs_its_key_again(benchmax: CommandLine) -> None:
    waiting, released = threading.Event(), threading.Event()

    def answers(said: str) -> tuple[int, dict[str, str], Any]:
        if said == "count 1":
            waiting.set()
            released.wait(60)
        return 200, {}, "yes"

    prepared(benchmax)
    with endpoint(answers) as (base_url, _):
        options = ("--model", "m", "--base-url", base_url, "--api-key-env", "KEY", "--group-size", "1", *OFF)
        command = ("run", "artifact", "--data", "data", "--record", "out", *options, "--max-in-flight", "1")
        with benchmax.running(*command, makes="out", env={"KEY": KEY}) as running:
            assert waiting.wait(60)
            running.send(signal.SIGINT)
            finished = running.finish()
        assert finished.code == 130
        assert "interrupted; what is shown is partial; `benchmax run --resume out` goes on" in finished.err
        released.set()
        assert report(benchmax)["interrupted"] is True
        assert "a key for http" in benchmax("run", "--resume", "out").error(2)
        resume = ("run", "--resume", "out", "--api-key-env", "KEY")
        assert "2 ok · 0 failed" in benchmax(*resume, env={"KEY": KEY}).good()
    assert set(notes(benchmax).values()) == {1}


def test_a_run_that_could_not_start_leaves_no_record(benchmax: CommandLine) -> None:
    prepared(benchmax)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        failed = record(benchmax, "--model", "m", "--base-url", base_url)
    assert "does not answer" in failed.error(3)
    assert not (benchmax.cwd / "out").exists()


async def test_a_run_whose_record_cannot_be_written_ends(benchmax: CommandLine) -> None:
    class Full(Course):
        @property
        def failure(self) -> RunnerError | None:
            return RunnerError("cannot write the record's outcomes.jsonl: No space left on device.")

    prepared(benchmax)
    plan = RunPlan(model=parse_model("mock", base_url=None), data=benchmax.cwd / "data", group_size=1)
    run = Run(read_artifact(benchmax.cwd / "artifact"), plan, cache=Cache(benchmax.cache), course=Full())
    with pytest.raises(RunnerError, match="No space left"):
        await run.run()


# -- comparing ------------------------------------------------------------------------------------------------


def test_two_runs_that_differ_are_told_apart(benchmax: CommandLine) -> None:
    prepared(benchmax)
    record(benchmax, "--group-size", "1").good()
    shutil.copytree(benchmax.cwd / "out", benchmax.cwd / "other")
    found = report(benchmax)
    found["groups"][1]["outcomes"][0]["rewards"]["length"] += 1
    (benchmax.cwd / "other" / "report.json").write_text(json.dumps(found))
    different = benchmax("diff", "out", "other")
    assert different.code == 1
    assert "rewards: 1 difference\n  1-example0-0 at length\n" in different.out
    assert different.out.endswith("different: 2 rollouts and 2 model calls compared\n")
    as_json = benchmax("diff", "out", "other", "--json")
    assert json.loads(as_json.out)["counts"]["rewards"] == 1
    assert "no such file" in benchmax("diff", "out", "nothing").error(2)
