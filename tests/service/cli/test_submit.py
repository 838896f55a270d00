"""`benchmax submit`: what a person or a pipeline sees of a validation that runs elsewhere."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.artifact import write_artifact
from runner.service.client import ServiceClient
from runner.service.client.wire import Validation, ValidationPage
from runner.validation import Verdict
from tests.integration.command_line import PROGRAM, CommandLine, Finished, Running
from tests.service.cli.running import Service, free_port, serving
from tests.validation.test_zoo import bundle_of
from tests.validation.zoo import conversations, failing, rollouts, sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def key(service: Service) -> str:
    return service.key()


def submit(benchmax: CommandLine, service: Service, key: str, *options: str, makes: str = "") -> Finished:
    return benchmax("submit", *options, "--server", service.url, makes=makes, env={"BENCHMAX_KEY": key})


def look(service: Service, key: str, validation_id: str) -> Validation:
    async def ask() -> Validation:
        async with ServiceClient(service.url, key) as client:
            return await client.validation(validation_id)

    return asyncio.run(ask())


def newest(service: Service, key: str) -> Validation:
    async def ask() -> ValidationPage:
        async with ServiceClient(service.url, key) as client:
            return await client.validations()

    return asyncio.run(ask()).items[0]


def test_a_valid_artifact_is_shown_as_validate_shows_it(benchmax: CommandLine, service: Service, key: str) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    (benchmax.cwd / "data" / "more").mkdir(parents=True)
    (benchmax.cwd / "data" / "more" / "rows.jsonl").write_text("{}\n")
    (benchmax.cwd / "data" / ".hidden").write_text("not sent")
    finished = submit(benchmax, service, key, "artifact", "--data", "data", "--name", "mine", "--json")
    verdict = Verdict.from_json(finished.good().encode())
    assert verdict.ok
    assert verdict.dataset is not None
    for said in ("upload: all of 3 files", "is waiting for an executor", "rollouts: running 8 rollouts at once"):
        assert said in finished.err
    assert "left out of the data: 1 hidden" in finished.err
    assert "valid: 0 errors, 0 warnings" in finished.err
    found = newest(service, key)
    assert (found.name, found.judgement) == ("mine", "valid")
    assert f"validation: {found.id}" in finished.err


def test_an_invalid_artifact_has_the_findings_and_files_that_were_asked_for(
    benchmax: CommandLine, service: Service, key: str
) -> None:
    write_artifact(bundle_of(conversations, "SetsTheTemperature"), benchmax.cwd / "artifact")
    out = benchmax.cwd.parent
    options = ("artifact", "--json-out", str(out / "verdict.json"), "--report", str(out / "page.html"))
    finished = submit(benchmax, service, key, *options)
    assert finished.code == 1, finished.err
    assert "error: trainer_owned_model_control: temperature" in finished.out
    assert "invalid: 1 error, 0 warnings" in finished.out
    assert Verdict.from_json((out / "verdict.json").read_bytes()).judgement == "invalid"
    assert b"trainer_owned_model_control" in (out / "page.html").read_bytes()


def test_what_cannot_be_judged_there_has_a_code_of_its_own(benchmax: CommandLine, service: Service, key: str) -> None:
    write_artifact(bundle_of(failing, "Judged"), benchmax.cwd / "artifact")
    finished = submit(benchmax, service, key, "artifact")
    assert finished.code == 3, finished.err
    assert "not judged: headers for the binding 'judge' were refused" in finished.out


def test_broken_metadata_is_a_finding_and_no_error(benchmax: CommandLine, service: Service, key: str) -> None:
    folder = benchmax.cwd / "artifact"
    write_artifact(bundle_of(sound, "Sound"), folder)
    (folder / "env-metadata.json").write_text("{")
    finished = submit(benchmax, service, key, "artifact")
    assert finished.code == 1, finished.err
    assert "error: artifact: " in finished.out


def test_an_interrupt_cancels_the_validation(benchmax: CommandLine, service: Service, key: str) -> None:
    write_artifact(bundle_of(rollouts, "NeverEnds"), benchmax.cwd / "artifact")
    arguments = ("submit", "artifact", "--server", service.url)
    with benchmax.running(*arguments, env={"BENCHMAX_KEY": key}) as running:
        running.wait_for("running 8 rollouts at once")
        running.send(signal.SIGINT)
        finished = running.finish()
    assert finished.code == 130, finished.err
    assert not finished.out
    found = newest(service, key)
    assert f"{found.id} is cancelled" in finished.err
    assert found.state == "cancelled" or found.cancelling


def test_who_detaches_gets_an_id_to_attach_to(benchmax: CommandLine, service: Service, key: str) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    finished = submit(benchmax, service, key, "artifact", "--detach", "--json")
    made = json.loads(finished.good())
    assert made["server"] == service.url
    assert f"--attach {made['id']}" in finished.err
    for _ in range(2):
        # while it runs, and when it is over
        again = submit(benchmax, service, key, "--attach", made["id"])
        assert "valid: 0 errors" in again.good()


def test_who_looks_on_ends_nothing(benchmax: CommandLine, service: Service, key: str) -> None:
    write_artifact(bundle_of(rollouts, "NeverEnds"), benchmax.cwd / "artifact")
    made = submit(benchmax, service, key, "artifact", "--detach").good().strip()
    with benchmax.running("submit", "--attach", made, "--server", service.url, env={"BENCHMAX_KEY": key}) as running:
        running.wait_for("running 8 rollouts at once")
        running.send(signal.SIGINT)
        assert running.finish().code == 130
    assert look(service, key, made).state == "running"

    async def cancel() -> None:
        async with ServiceClient(service.url, key) as client:
            await client.cancel(made)

    asyncio.run(cancel())
    said = submit(benchmax, service, key, "--attach", made).error(3)
    assert f"{made} was cancelled" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_that_goes_and_comes_back_is_waited_for(
    number: signal.Signals, benchmax: CommandLine, shared_cache: Path
) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    data, port = benchmax.cwd.parent / "data", free_port()
    with serving(data, shared_cache, "--insecure-sandbox", port=port) as first:
        environ = benchmax.environment({"BENCHMAX_KEY": first.key()})
        # not by `benchmax.running`: executors of a server that was killed need a moment to notice
        with subprocess.Popen(
            [str(PROGRAM), "submit", "artifact", "--server", first.url],
            cwd=benchmax.cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        ) as process:  # fmt: skip
            running = Running(process)
            try:
                running.wait_for("dataset: ")
                first.end(number)
                running.wait_for("going on after event")
                with serving(data, shared_cache, "--insecure-sandbox", port=port):
                    assert "valid: 0 errors" in running.finish().good()
            finally:
                process.kill()


# -- mistakes -----------------------------------------------------------------------------------------------------

MISTAKES = {
    "": ["one of these is required: DIR or --attach ID", "benchmax submit --help"],
    "nowhere": ["no artifact at nowhere: no such folder"],
    "artifact --data nowhere": ["the dataset path nowhere does not exist", "Give --data the folder"],
    "artifact --data odd": ["takes no file of the name 'ro\\tws.jsonl'", "Rename it"],
    "artifact --key-env sk-live": ["--key-env wants the name of an environment variable"],
    "artifact --key-env MISSING": ["--key-env: the environment variable MISSING is not set", "Export it"],
    "artifact --server nonsense": ["'nonsense' is not the URL of a service", "It looks like https://host"],
    "artifact --server http://me:SECRET@host": ["holds a user name or a password"],
    "artifact --attach job_1": ["DIR has no use with --attach"],
    "--attach job_1 --timeout 3": ["--timeout has no use with --attach"],
    "artifact --detach --report page.html": ["--report has no use with --detach"],
    "artifact --report nowhere/page.html": ["cannot write --report nowhere/page.html"],
    "artifact --split test": ["--split", "'test'"],
    "--attach nothing": ["there is no such validation"],
    "artifact --timeout 700": ["options.timeout_s: it may be 600 at most"],
    "artifact --timeout 86401": ["--timeout: input should be less than or equal to 86400"],
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_said_in_one_line(
    line: str, here: Callable[..., Finished], benchmax: CommandLine, service: Service, key: str
) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    (benchmax.cwd / "odd").mkdir()
    (benchmax.cwd / "odd" / "ro\tws.jsonl").write_text("{}")
    said = here("submit", *line.split(), BENCHMAX_KEY=key, BENCHMAX_SERVER=service.url).error(2)
    for part in MISTAKES[line]:
        assert part in said
    assert "SECRET" not in said


def test_without_a_service_nothing_is_uploaded(here: Callable[..., Finished], benchmax: CommandLine, key: str) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    assert "no service was named" in here("submit", "artifact", BENCHMAX_KEY=key).error(2)


def test_a_key_that_is_not_known_is_refused_before_anything_is_sent(benchmax: CommandLine, service: Service) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    finished = submit(benchmax, service, "bmx_key_aaaaaaaaaaaaaaaaaaaa_nonsense", "artifact")
    assert "the key is not known, has expired or was revoked" in finished.error(2)
    assert "upload" not in finished.err


def test_a_service_that_is_not_there_leaves_it_undecided(
    here: Callable[..., Finished], benchmax: CommandLine, key: str
) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    url = f"http://127.0.0.1:{free_port()}"
    said = here("submit", "artifact", "--server", url, BENCHMAX_KEY=key).error(3)
    assert f"the service at {url} cannot be reached" in said
    assert "Check the URL" in said
