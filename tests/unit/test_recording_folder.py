"""The folder of a record: new or empty, one writer at a time, nobody else's to read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import bundle_digest
from runner.artifact import Artifact, read_artifact
from runner.broker import Binding
from runner.errors import UsageError
from runner.limits import Limits
from runner.models import parse_model
from runner.plan import RunPlan
from runner.provision import ProvisionOptions
from runner.record import RolloutRecord
from runner.recording.facts import FORMAT, ExampleFacts, RecordFacts
from runner.recording.folder import RecordFolder
from runner.recording.recording import Recording, check_examples, last_outcomes
from runner.recording.settings import Settings
from runner.variables import SecretVariables
from tests.unit.recording_lab import ended, known, some_artifact, some_plan

SECRET = "sk-sentinel-4711"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "eval.jsonl").write_text("{}")
    return folder


# -- making and claiming --------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [False, True])
def test_a_new_or_empty_folder_is_taken_and_closed_to_others(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "deep" / "out"
    if there:
        path.mkdir(parents=True)
    RecordFolder.create(path).close()
    assert path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs.txt").write_text("1")
    with pytest.raises(UsageError, match="is not empty"):
        RecordFolder.create(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        RecordFolder.create(tmp_path / "theirs.txt")
    (tmp_path / "record.json").write_text("{}")
    with pytest.raises(UsageError, match=r"holds a record already\. .*--resume"):
        RecordFolder.create(tmp_path)
    assert (tmp_path / "theirs.txt").read_text() == "1"


def test_two_runs_never_write_oneended(tmp_path: Path) -> None:
    path = tmp_path / "out"
    first = RecordFolder.create(path)
    with pytest.raises(UsageError, match="another run is writing the record"):
        RecordFolder.create(path)
    (path / "record.json").write_text("{}")
    with pytest.raises(UsageError, match="another run is writing the record"):
        RecordFolder.open(path, claim=True)
    RecordFolder.open(path, claim=False)
    first.close()
    first.close()
    RecordFolder.open(path, claim=True).close()


def test_a_claim_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "out"
    code = (
        "import sys; from pathlib import Path; from runner.recording.folder import RecordFolder\n"
        f"folder = RecordFolder.create(Path({str(path)!r})); (folder.path / 'record.json').write_text('')\n"
        "print('claimed', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"claimed\n"
        with pytest.raises(UsageError, match="another run"):
            RecordFolder.open(path, claim=True)
        process.kill()
    RecordFolder.open(path, claim=True).close()


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.write_text(""), lambda path: path.mkdir()])
def test_what_is_no_record_is_refused(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "x")
    with pytest.raises(UsageError, match=r"no record"):
        RecordFolder.open(tmp_path / "x", claim=False)


# -- what it holds --------------------------------------------------------------------------------------------


def test_a_plan_comes_back_without_its_secrets(tmp_path: Path, data: Path) -> None:
    plan = some_plan(
        data,
        model_auth=StaticBearerAuth(SECRET),
        auth={"judge": Binding(StaticBearerAuth(SECRET), urls=["https://judge.example/v1"])},
        secrets=SecretVariables({"DATABASE": SECRET}),
        split="train",
        max_examples=3,
        group_size=2,
        network="model-only",
        allow=("data.example:443",),
        credentials="gateway",
        limits=Limits(rollout_s=5, context_tokens=100),
        python="3.12",
        provisioning=ProvisionOptions(installer="pip", only_binary=True),
    )
    recording = Recording.new(tmp_path / "out", some_artifact(tmp_path / "a"), plan)
    recording.keep(ended("r"), known(ended("r")))
    recording.ended(None)
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    facts = RecordFolder.open(tmp_path / "out", claim=False).read_facts()
    again = facts.settings.plan(
        data=data,
        model=facts.settings.model.choice(),
        model_auth=plan.model_auth,
        auth=plan.auth,
        secrets=plan.secrets,
        provisioning=ProvisionOptions(),
    )
    assert again == plan


def test_the_artifact_is_kept_byte_for_byte(tmp_path: Path, data: Path) -> None:
    source = tmp_path / "a"
    some_artifact(source)
    fields = msgspec.json.decode((source / "env-metadata.json").read_bytes())
    # as another release may write it
    (source / "env-metadata.json").write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=7))
    (source / "env-facts.json").write_text("{}")
    artifact = read_artifact(source)
    Recording.new(tmp_path / "out", artifact, some_plan(data))
    kept = tmp_path / "out" / "artifact"
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }
    folder = RecordFolder.open(tmp_path / "out", claim=False)
    assert folder.read_artifact(artifact.digest).digest == bundle_digest(artifact.bundle)
    (kept / "env-cls.pkl").write_bytes(b"another")
    with pytest.raises(UsageError, match=f"{artifact.digest} was recorded"):
        folder.read_artifact(artifact.digest)


def test_a_lock_beside_the_artifact_is_kept_with_paths_that_lead_to_the_same(tmp_path: Path, data: Path) -> None:
    artifact = some_artifact(tmp_path / "a")
    lock = '# mine\nlock-version = "1.0"\ncreated-by = "me"\n'
    (tmp_path / "a" / "pylock.toml").write_text(lock)
    Recording.new(tmp_path / "out", artifact, some_plan(data))
    assert (tmp_path / "out" / "pylock.toml").read_text() == lock
    lock += '[[packages]]\nname = "x"\n[packages.archive]\npath = "w/x.whl"\nhashes = {sha256 = "0"}\n'
    (tmp_path / "a" / "pylock.toml").write_text(lock)
    Recording.new(tmp_path / "more", artifact, some_plan(data))
    assert f'path = "{tmp_path}/a/w/x.whl"' in (tmp_path / "more" / "pylock.toml").read_text()


def test_a_run_of_which_nothing_came_leaves_noended(tmp_path: Path, data: Path) -> None:
    recording = Recording.new(tmp_path / "out", some_artifact(tmp_path / "a"), some_plan(data))
    assert (tmp_path / "out" / "record.json").exists()
    recording.ended(None)
    assert not (tmp_path / "out").exists()


def test_a_record_of_a_later_release_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(f'{{"format": {FORMAT + 1}, "anything": "else"}}')
    with pytest.raises(UsageError, match=f"has format {FORMAT + 1}, and this benchmax reads up to {FORMAT}"):
        RecordFolder.open(tmp_path, claim=False).read_facts()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": "1"}', "\0", "[" * 100_000])
def test_a_record_that_is_damaged_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(UsageError, match=r"record\.json is broken"):
        RecordFolder.open(tmp_path, claim=False).read_facts()


def test_fields_that_are_not_known_are_ignored(tmp_path: Path, data: Path) -> None:
    recording = Recording.new(tmp_path / "out", some_artifact(tmp_path / "a"), some_plan(data))
    recording.keep(ended("r"), known(ended("r")))
    recording.ended(None)
    path = tmp_path / "out" / "record.json"
    fields = msgspec.json.decode(path.read_bytes())
    fields["later"] = fields["settings"]["later"] = fields["settings"]["limits"]["later"] = 1
    path.write_bytes(msgspec.json.encode(fields))
    facts = RecordFolder.open(tmp_path / "out", claim=False).read_facts()
    assert isinstance(facts, RecordFacts)
    assert facts.settings == msgspec.structs.replace(
        Settings.of(some_plan(data)), limits={**Settings.of(some_plan(data)).limits, "later": 1}
    )


# -- going on -------------------------------------------------------------------------------------------------


def _attempt(path: Path, plan: RunPlan, *outcomes: RolloutRecord, artifact: Artifact) -> Recording:
    """One attempt at a run, which is ended before it has a report."""
    if path.exists():
        folder = RecordFolder.open(path, claim=True)
        recording = Recording.resumed(folder, folder.read_facts(), artifact, plan)
    else:
        recording = Recording.new(path, artifact, plan)
    for record in outcomes:
        recording.keep(record, known(record))
    return recording


GROUP = ["0-e-0", "0-e-1", "0-e-2"]


def test_what_has_an_outcome_stands_unless_that_was_infrastructure(tmp_path: Path, data: Path) -> None:
    artifact, plan = some_artifact(tmp_path / "a"), some_plan(data)
    first = _attempt(tmp_path / "out", plan, ended("0-e-0"), ended("0-e-1", "worker_lost", "runner"), artifact=artifact)
    assert first.standing(GROUP, scores_groups=False) == {}
    first.ended(None)
    second = _attempt(tmp_path / "out", plan, artifact=artifact)
    assert second.standing(GROUP, scores_groups=False).keys() == {"0-e-0"}
    assert second.standing(GROUP, scores_groups=True) == {}
    second.keep(ended("0-e-1", "model_error"), known(ended("0-e-1", "model_error")))
    second.keep(ended("0-e-2", "bundle's own"), known(ended("0-e-2", "bundle's own")))
    second.ended(None)
    third = _attempt(tmp_path / "out", plan, artifact=artifact)
    assert third.standing(GROUP, scores_groups=False).keys() == {"0-e-0", "0-e-2"}
    third.ended(None)


def test_a_group_that_is_scored_together_stands_whole_and_of_one_attempt_or_not_at_all(
    tmp_path: Path, data: Path
) -> None:
    artifact, plan = some_artifact(tmp_path / "a"), some_plan(data)
    _attempt(tmp_path / "out", plan, *map(ended, GROUP[:2]), artifact=artifact).ended(None)
    # the second attempt is ended while it writes the outcomes of the group
    _attempt(tmp_path / "out", plan, *map(ended, GROUP[2:]), artifact=artifact).ended(None)
    third = _attempt(tmp_path / "out", plan, *map(ended, GROUP), artifact=artifact)
    assert third.standing(GROUP, scores_groups=False).keys() == {*GROUP}
    assert third.standing(GROUP, scores_groups=True) == {}
    third.ended(None)
    fourth = _attempt(tmp_path / "out", plan, artifact=artifact)
    assert fourth.standing(GROUP, scores_groups=True).keys() == {*GROUP}
    fourth.ended(None)


def test_what_is_held_of_earlier_transcripts_is_bounded(tmp_path: Path, data: Path) -> None:
    recording = Recording.new(tmp_path / "out", some_artifact(tmp_path / "a"), some_plan(data))
    for name in GROUP:
        recording.keep(ended(name), msgspec.structs.replace(known(ended(name)), transcript=["x" * 1000]))
    recording.ended(None)
    folder = RecordFolder.open(tmp_path / "out", claim=False)
    found, held = last_outcomes(folder, report_bytes=3000)
    assert held <= 3000
    assert [found[name].outcome.transcript for name in GROUP] == [["x" * 1000], ["x" * 1000], []]
    assert found[GROUP[2]].outcome.transcript_omitted_bytes == 1004


def test_other_examples_than_before_are_refused() -> None:
    recorded = ExampleFacts.of(["a", "b"])
    check_examples(ExampleFacts.of(["a", "b"]), recorded)
    for other, text in ((["a"], "has 1 examples, and 2 were recorded"), (["ab", ""], "has other examples than were")):
        with pytest.raises(UsageError, match=text):
            check_examples(ExampleFacts.of(other), recorded)


def test_credentials_are_asked_for_again_and_none_beyond(data: Path) -> None:
    auth = StaticBearerAuth(SECRET)
    plan = some_plan(
        data,
        model_auth=auth,
        auth={"judge": Binding(auth, urls=["https://judge.example/v1"])},
        secrets=SecretVariables({"DB": "x"}),
    )
    settings = Settings.of(plan)
    judge = {"judge": ["https://judge.example/v1"]}
    settings.check_credentials(model_auth=auth, auth=judge, secrets=["DB"])
    for key, given, secrets, text in (
        (None, judge, ["DB"], "a key for https://models.example/v1"),
        (auth, {}, ["DB"], "--auth judge=env:VAR@https://judge.example/v1"),
        (
            auth,
            {"judge": ["https://evil.example"]},
            ["DB"],
            "is for https://evil.example, but .* https://judge.example/v1",
        ),
        (auth, judge, [], "--secret DB=env:VAR"),
        (auth, judge, ["DB", "MORE"], "--secret MORE: the record was made without it"),
        (auth, {**judge, "more": []}, ["DB"], "without --auth more"),
    ):
        with pytest.raises(UsageError, match=text):
            settings.check_credentials(model_auth=key, auth=given, secrets=secrets)
    with pytest.raises(UsageError, match="without --api-key-env"):
        Settings.of(some_plan(data)).check_credentials(model_auth=auth, auth={}, secrets=[])


def test_a_script_that_has_changed_is_refused(tmp_path: Path, data: Path) -> None:
    script = tmp_path / "mock.json"
    script.write_text('{"rules": []}')
    settings = Settings.of(RunPlan(model=parse_model(f"mock:{script}", base_url=None), data=data))
    assert settings.model.choice().script == script
    script.write_text('{"rules": [ ]}')
    with pytest.raises(UsageError, match=r"mock\.json is not what it was"):
        settings.model.choice()
