"""The command `benchmax validate`, as a person or a service runs it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from runner.artifact import METADATA_NAME, write_artifact
from runner.report.page import validation_page
from runner.sandbox import probe
from runner.validation import Verdict
from runner.validation.codes import CHECKS
from tests.conftest import require
from tests.integration.command_line import CommandLine
from tests.report_page.reading import read
from tests.validation.test_zoo import bundle_of
from tests.validation.zoo import bundled, conversations, failing, rollouts, sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

OFF = ("--sandbox", "off")


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def test_a_sound_artifact_is_valid_in_the_default_sandbox(benchmax: CommandLine) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", "--json", "--json-out", "verdict.json", makes="verdict.json")
    verdict = Verdict.from_json(finished.good().encode())
    assert verdict.ok
    assert Verdict.from_json((benchmax.cwd / "verdict.json").read_bytes()) == verdict
    assert verdict.sandbox is not None
    assert (verdict.sandbox.level, verdict.sandbox.network) == ("namespaces", "model-only")
    for name in CHECKS:
        assert name in finished.err
    assert "valid: 0 errors, 0 warnings" in finished.err


def test_what_is_wrong_is_said_with_what_to_do(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(conversations, "SetsTheTemperature"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", *OFF)
    assert finished.code == 1, finished.err
    assert "error: trainer_owned_model_control: temperature" in finished.out
    assert "temperature is 0.2" in finished.out
    assert "invalid: 1 error, 0 warnings" in finished.out
    assert "benchmax: error" not in finished.err


def test_the_page_of_a_verdict_is_written_and_its_json_gives_the_same_page(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(conversations, "SetsTheTemperature"), benchmax.cwd / "artifact")
    out = benchmax.cwd / "out"
    out.mkdir()
    finished = benchmax("validate", "artifact", *OFF, "--report", "out/a.html", "--json-out", "out/a.json")
    assert finished.code == 1, finished.err
    assert finished.out.splitlines()[-2:] == ["verdict: out/a.json", "page: out/a.html"]
    verdict = Verdict.from_json((out / "a.json").read_bytes())
    assert verdict.report is not None
    assert len(verdict.report.outcomes) == 8
    assert (out / "a.html").read_bytes() == validation_page(verdict)
    shown = benchmax("report", "out/a.json", "--html", "out/b.html")
    assert shown.good().splitlines()[-1] == "page: out/b.html"
    assert "invalid: 1 error, 0 warnings" in shown.out
    assert (out / "b.html").read_bytes() == (out / "a.html").read_bytes()
    assert benchmax("report", "out/a.json", "--json").good().encode() == (out / "a.json").read_bytes()


def test_a_bundle_that_cannot_be_loaded_has_a_page_too(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    (benchmax.cwd / "artifact" / METADATA_NAME).write_text("{")
    finished = benchmax("validate", "artifact", *OFF, "--report", "page.html", makes="page.html")
    assert finished.code == 1, finished.err
    text = read((benchmax.cwd / "page.html").read_bytes()).text
    assert "Invalid" in text
    assert "its files cannot be read" in text


def test_a_page_that_cannot_be_written_after_all_costs_nothing_of_the_verdict(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(bundled, "ConstructorRaises"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", *OFF, "--report", "/dev/full", "--json-out", "v.json", makes="v.json")
    assert finished.code == 3, finished.err
    assert "cannot write /dev/full: No space left on device. The verdict is shown above." in finished.err
    assert "does-not-load" in finished.out
    assert Verdict.from_json((benchmax.cwd / "v.json").read_bytes()).judgement == "invalid"


def test_what_is_neither_a_report_nor_a_verdict_is_refused(benchmax: CommandLine) -> None:
    (benchmax.cwd / "v.json").write_text('{"format": 1, "judgement": "splendid"}')
    assert "v.json is neither a report nor a verdict" in benchmax("report", "v.json").error(2)


def test_what_cannot_be_judged_has_a_code_of_its_own(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(failing, "Judged"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", *OFF)
    assert finished.code == 3, finished.err
    assert "not judged: nothing is bound to 'judge': bind it with --auth judge=env:VAR@URL" in finished.out


def test_text_of_a_bundle_does_nothing_to_the_terminal(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(bundled, "SpeaksToTheTerminal"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", *OFF, "--json-out", "verdict.json", makes="verdict.json")
    assert finished.code == 1, finished.err
    said = finished.out + finished.err + (benchmax.cwd / "verdict.json").read_text()
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "all is well" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere"], "no artifact at nowhere"),
        (["artifact", "--data", "nowhere"], "dataset path nowhere does not exist"),
        (["artifact", "--api-key-env", "HOME"], "--api-key-env needs --base-url"),
        (["artifact", "--sandbox", "bogus"], "'bogus' is not known"),
        (["artifact", "--model", "nothing"], "There is no model `nothing`"),
        (["artifact", "--max-context-tokens", "0"], "must be a whole number of at least 1"),
        (["artifact", "--json-out", "nowhere/verdict.json"], "cannot write --json-out"),
        (["artifact", "--report", "nowhere/page.html"], "cannot write --report nowhere/page.html: No such file"),
        (["artifact", "--report", "artifact"], "cannot write --report artifact: Is a directory"),
        (["artifact", "--groupsize", "2"], "unknown argument: --groupsize"),
    ],
)
def test_a_mistake_is_said_in_one_line(options: list[str], said: str, benchmax: CommandLine) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    assert said in benchmax("validate", *options).error(2)


def test_a_level_that_cannot_be_had_is_refused_with_the_remedy(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    said = benchmax("validate", "artifact", "--sandbox", "landlock", "--network", "model-only").error(3)
    assert "leaves a worker the machine's network" in said


def test_the_json_of_a_verdict_is_one_object_with_its_format(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(bundled, "ConstructorRaises"), benchmax.cwd / "artifact")
    finished = benchmax("validate", "artifact", *OFF, "--json")
    assert finished.code == 1
    found = json.loads(finished.out)
    assert (found["format"], found["judgement"]) == (1, "invalid")
    (finding,) = found["findings"]
    assert finding["code"] == "does-not-load"
    assert "KeyError: 'settings'" in finding["message"]


def test_an_interrupted_validation_leaves_nothing_behind(benchmax: CommandLine) -> None:
    write_artifact(bundle_of(rollouts, "NeverEnds"), benchmax.cwd / "artifact")
    with benchmax.running("validate", "artifact", *OFF) as running:
        running.wait_for("running 8 rollouts at once")
        running.send(signal.SIGINT)
        finished = running.finish()
    assert finished.code == 130, finished.err
    assert not finished.out
