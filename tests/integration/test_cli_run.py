"""`benchmax run`, `prepare` and `inspect` when all goes well, and when rollouts do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.artifact import read_artifact
from runner.errors import WorkerStartError
from runner.limits import Limits
from runner.models import parse_model
from runner.provision import Cache
from runner.run import Run, RunPlan
from runner.sandbox.probe import strongest
from tests.integration.command_line import PROGRAM, CommandLine

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def outcomes(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [outcome for group in report["groups"] for outcome in group["outcomes"]]


def test_json_alone_is_on_standard_output_and_equals_the_file(benchmax: CommandLine) -> None:
    benchmax.artifact()
    finished = benchmax("run", "artifact", "--group-size", "2", "--json", "--json-out", "r.json", makes="r.json")
    assert finished.good().encode() == (benchmax.cwd / "r.json").read_bytes()
    report = json.loads(finished.out)
    assert report["format"] == 1
    assert len(report["bundle"]["digest"]) == 64
    assert report["bundle"]["python_version"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert report["venv"]["key"]
    assert report["venv"]["packages"]["benchmax"]
    assert report["sandbox"]["level"] == strongest()
    assert report["sandbox"]["data"] in (["real folder"] if strongest() == "off" else ["overlay", "copy"])
    assert "disk watch" in report["sandbox"]["mechanisms"]
    assert "memory: no limit was asked for" in report["sandbox"]["not_limited"]
    assert [group["example_id"] for group in report["groups"]] == ["example0", "example1"]
    assert {"start_s", "dataset_s", "rollouts_s", "total_s"} <= set(report["timings"])
    assert [outcome["rollout_id"] for outcome in outcomes(report)] == [
        "0-example0-0",
        "0-example0-1",
        "1-example1-0",
        "1-example1-1",
    ]
    for outcome in outcomes(report):
        assert outcome["termination_reason"] == "finished"
        assert outcome["error"] is None
        assert outcome["rewards"] == {"score": float(outcome["rollout_id"][0])}
    # the table is on standard error then
    assert "1-example1-1  finished" in finished.err
    assert "4 ok · 0 failed · 0 missing of 4 rollouts" in finished.err


def test_a_second_run_finds_the_venv_and_gives_the_same_rollouts(benchmax: CommandLine) -> None:
    benchmax.artifact()
    runs = [benchmax("run", "artifact", "--max-examples", "1", "--json") for _ in range(2)]
    assert "cached: venv" in runs[1].err
    first, second = ({o["rollout_id"]: o["rewards"] for o in outcomes(json.loads(run.good()))} for run in runs)
    assert first == second
    assert len(first) == 4


def test_a_table_without_a_terminal_holds_no_escape_codes(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="one fails")
    finished = benchmax("run", "artifact", "--group-size", "1", env={"NO_COLOR": "1"})
    assert finished.code == 1
    assert "\x1b" not in finished.out + finished.err
    assert finished.out.splitlines()[0].split() == ["rollout", "ended", "score", "s"]
    failed = next(line for line in finished.out.splitlines() if line.startswith("1-"))
    assert failed.split()[:3] == ["1-example1-0", "out_of_luck", "–"]
    assert "no luck today" in failed
    assert "1 ok · 1 failed · 0 missing of 2 rollouts" in finished.out
    assert "benchmax: error" not in finished.err


def test_a_group_that_raises_is_recorded_and_the_others_go_on(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="one group raises", size=3)
    finished = benchmax("run", "artifact", "--group-size", "2", "--json")
    assert finished.code == 1
    groups = json.loads(finished.out)["groups"]
    assert [len(group["outcomes"]) for group in groups] == [2, 0, 2]
    assert "raised ArithmeticError: a defect" in groups[1]["error"]
    assert groups[1]["error_code"] == "remote"
    assert "in run_rollout" in groups[1]["traceback"]
    assert "4 ok · 0 failed · 2 missing of 6 rollouts" in finished.err


def test_a_worker_that_exits_fails_its_rollouts_not_the_command(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="worker exits")
    finished = benchmax("run", "artifact", "--group-size", "1", "--json")
    assert finished.code == 1
    assert {outcome["termination_reason"] for outcome in outcomes(json.loads(finished.out))} == {"sandbox_error"}
    assert "exit code 7" in outcomes(json.loads(finished.out))[0]["error"]


def test_an_environment_that_does_not_close_spoils_the_exit_code_not_the_outcomes(benchmax: CommandLine) -> None:
    benchmax.artifact(mode="aclose raises")
    finished = benchmax("run", "artifact", "--group-size", "1")
    assert finished.code == 1
    assert "2 ok · 0 failed · 0 missing of 2 rollouts" in finished.out
    assert "closing the environment: aclose raised RuntimeError: it would not close" in finished.out


def test_printed_output_is_shown_on_demand_by_rollout_and_outside(benchmax: CommandLine) -> None:
    benchmax.artifact()
    options = ["artifact", "--group-size", "1"]
    assert "rollout of 1" not in benchmax("run", *options).err
    shown = benchmax("run", *options, "--show-output").err
    assert "--- stdout outside of rollouts\n  constructed\n" in shown
    assert "--- 0-example0-0\n  stdout: rollout of 0\n" in shown
    assert "--- 1-example1-0\n  stdout: rollout of 1\n" in shown


def test_control_characters_from_a_bundle_are_shown_as_text(benchmax: CommandLine) -> None:
    benchmax.artifact(environment="Nasty")
    ran = benchmax("run", "artifact", "--group-size", "1", "--show-output", "--json-out", "r.json", makes="r.json")
    inspected = benchmax("inspect", "artifact")
    assert ran.code == 1
    everything = ran.out + ran.err + inspected.good() + inspected.err
    assert not [c for c in everything if c != "\n" and not c.isprintable()]
    assert r"\x1b[31mreason" in ran.out
    assert r"\x1b[31merror \x1b]0;title\x07 [red]markup[/red] :smile:" in ran.out
    assert r"[red]score[/red]" in ran.out
    assert r"  stdout: \x1b[31mprinted" in ran.err
    assert r"  \x1b[31mlogger: \x9b31mtwice" in ran.err
    assert "\n--- 0-forged-0" not in ran.err
    assert r"\u202ebidirectional" in inspected.out
    # the JSON keeps what was said, in JSON's own escapes
    text = (benchmax.cwd / "r.json").read_text()
    assert "\x1b" not in text
    assert outcomes(json.loads(text))[1]["termination_reason"] == "\x1b[31mreason"
    assert outcomes(json.loads(text))[0]["rewards"]["\x1b[31m[red]score[/red]"] == 1e30


async def test_a_constructor_that_hangs_is_ended_by_its_limit(benchmax: CommandLine) -> None:
    artifact = read_artifact(benchmax.artifact(mode="constructor hangs"))
    mock = parse_model("mock", base_url=None)
    run = Run(
        artifact,
        RunPlan(model=mock, data=benchmax.cwd, limits=Limits(startup_s=1.0)),
        cache=Cache(benchmax.cache),
    )
    with pytest.raises(WorkerStartError, match=r"not ready after 1 s"):
        await run.run()
    assert run.report() is None


def test_a_scripted_mock_is_started_for_the_run(benchmax: CommandLine) -> None:
    benchmax.artifact()
    (benchmax.cwd / "script.json").write_text('{"rules": [{"reply": {"text": "hello"}}]}')
    report = json.loads(benchmax("run", "artifact", "--model", "mock:script.json", "--json").good())
    assert report["model"]["kind"] == "mock"
    assert report["model"]["base_url"].startswith("http://127.0.0.1:")


def test_a_report_can_go_to_a_device(benchmax: CommandLine) -> None:
    benchmax.artifact()
    benchmax("run", "artifact", "--json-out", "/dev/null").good()
    assert Path("/dev/null").is_char_device()


def test_a_report_goes_to_what_a_link_points_to(benchmax: CommandLine) -> None:
    benchmax.artifact()
    target = benchmax.cwd.parent / "target.json"
    (benchmax.cwd / "link.json").symlink_to(target)
    benchmax("run", "artifact", "--json-out", "link.json").good()
    assert json.loads(target.read_bytes())["format"] == 1
    assert (benchmax.cwd / "link.json").is_symlink()


def test_preparing_names_the_venv_and_finds_it_the_second_time(benchmax: CommandLine) -> None:
    benchmax.artifact()
    first = json.loads(benchmax("prepare", "artifact", "--json").good())
    again = benchmax("prepare", "artifact", "--json")
    assert json.loads(again.good()) == first
    assert f"cached: venv {first['key']}" in again.err
    assert (Path(first["path"]) / "bin" / "python").exists()
    assert first["packages"]["benchmax"]
    plain = benchmax("prepare", "artifact").good()
    assert first["path"] in plain
    assert f"  benchmax {first['packages']['benchmax']}" in plain


def test_inspecting_shows_metadata_and_the_whole_source(benchmax: CommandLine) -> None:
    path = benchmax.artifact() / "env-metadata.json"
    fields = json.loads(path.read_text())
    fields["env_class_source"] = "class Tiny:\n    a = 1" + " " * 500 + "; far_right = 2\n"
    path.write_text(json.dumps(fields))
    shown = benchmax("inspect", "artifact").good()
    assert fields["benchmax_version"] in shown
    assert "far_right" in shown
    assert "need not agree" in shown
    facts = json.loads(benchmax("inspect", "artifact", "--json").good())
    assert facts["env_class_source"] == fields["env_class_source"]
    assert facts["digest"] in shown


@pytest.mark.parametrize("arguments", ["inspect artifact", "run artifact", "run artifact --json", "--help"])
def test_a_reader_that_leaves_early_changes_nothing(benchmax: CommandLine, arguments: str) -> None:
    benchmax.artifact()
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as reader:
        reader.wait()
        assert reader.stdin is not None
        finished = benchmax(*arguments.split(), out=reader.stdin.fileno())
        assert finished.code == 0
        assert "Broken" not in finished.err
        assert "error" not in finished.err


def test_closed_streams_and_small_alphabets_do_not_disturb(benchmax: CommandLine) -> None:
    benchmax.artifact()
    closed = f"exec {PROGRAM} inspect artifact >&- 2>&-"
    assert subprocess.run(["sh", "-c", closed], cwd=benchmax.cwd, env=benchmax.environment()).returncode == 0
    finished = benchmax("run", "artifact", "--group-size", "1", env={"PYTHONIOENCODING": "ascii"})
    assert r"2 ok \xb7 0 failed" in finished.good()


@pytest.mark.parametrize("command", ["", "bundle", "inspect", "prepare", "run"])
def test_help_names_every_option_and_is_not_cut(benchmax: CommandLine, command: str) -> None:
    from runner.cli.parser import build_parser

    parser, commands = build_parser()
    shown = benchmax(*command.split(), "--help").good()
    chosen = commands.choices[command] if command else parser
    options = [option for action in chosen._actions for option in action.option_strings]
    assert [option for option in options if option not in shown] == []
    assert max(map(len, shown.splitlines())) <= 120
    if not command:
        assert [name for name in commands.choices if name not in shown] == []
        assert "130 interrupted" in shown


def test_help_and_version_load_nothing_heavy(benchmax: CommandLine) -> None:
    heavy = {
        "openai",
        "httpx",
        "rich",
        "msgspec",
        "cloudpickle",
        "virtualenv",
        "uv",
        "asyncio",
        "packaging",
        "pydantic",
    }
    code = (
        "import sys; from runner.cli import main; code = main(sys.argv[1:])\n"
        f"print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    for option in ("--help", "--version"):
        ran = subprocess.run(
            [sys.executable, "-c", code, option], capture_output=True, text=True, env=benchmax.environment()
        )
        assert (ran.returncode, ran.stderr) == (0, "[]\n")
        assert ran.stdout.startswith(("usage: benchmax", "benchmax 0."))
