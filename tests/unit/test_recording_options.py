"""Options of the command line beside a record: what it says need not be said again, and cannot be said otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmax.auth import StaticBearerAuth
from runner.broker import Binding
from runner.cli.parser import parse_arguments
from runner.cli.recorded import Undertaking, replayed, resumed
from runner.cli.run import execute, plan_of
from runner.errors import UsageError
from runner.limits import Limits
from runner.recording.folder import RecordFolder
from runner.variables import SecretVariables
from tests.unit.recording_lab import ended, recorded_run, some_artifact, some_plan

KEY = "sk-sentinel-4711"
URL = "https://judge.example/v1"
CREDENTIALS = ("--api-key-env", "KEY", "--auth", f"judge=env:KEY@{URL}", "--secret", "DB=env:KEY")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", KEY)


@pytest.fixture
def record(tmp_path: Path) -> RecordFolder:
    data = tmp_path / "data"
    data.mkdir()
    (data / "eval.jsonl").write_text("{}")
    plan = some_plan(
        data,
        model_auth=StaticBearerAuth(KEY),
        auth={"judge": Binding(StaticBearerAuth(KEY), urls=[URL])},
        secrets=SecretVariables({"DB": KEY}),
        group_size=2,
        max_examples=1,
        network="model-only",
        allow=("data.example:443",),
        limits=Limits(rollout_s=7),
    )
    artifact = some_artifact(tmp_path / "artifact")
    return recorded_run(tmp_path / "out", artifact, plan, ended("0-e-0"), ended("0-e-1", "model_error"))


def undertaken(record: RecordFolder, option: str, *more: str) -> Undertaking:
    undertaking = (resumed if option == "--resume" else replayed)(
        parse_arguments(["run", option, str(record.path), *more])
    )
    undertaking.course.ended(None)
    return undertaking


def test_what_was_said_once_holds(record: RecordFolder) -> None:
    again = undertaken(record, "--resume", *CREDENTIALS)
    plan = again.plan
    assert again.artifact.digest == record.read_facts().digest
    assert (plan.group_size, plan.max_examples, plan.network, plan.allow) == (2, 1, "model-only", ("data.example:443",))
    assert (plan.limits.rollout_s, plan.model.base_url, plan.credentials) == (7, "https://models.example/v1", "gateway")
    assert plan.secrets["DB"] == KEY


def test_a_replay_has_stand_ins_for_all_credentials(record: RecordFolder) -> None:
    plan = undertaken(record, "--replay").plan
    assert plan.auth.keys() == {"judge"}
    assert plan.model_auth is not None
    assert plan.secrets.keys() == {"DB"}
    assert plan.secrets["DB"] != KEY
    assert undertaken(record, "--replay", "--secret", "DB=env:KEY").plan.secrets["DB"] == KEY


@pytest.mark.parametrize("option", ["--resume", "--replay"])
def test_options_may_repeat_what_the_record_says(record: RecordFolder, option: str) -> None:
    same = ["--group-size", "2", "--max-examples", "1", "--split", "eval", "--sandbox", "auto", "--timeout", "7"]
    same += ["--model", "m", "--base-url", "https://models.example/v1", "--network", "model-only"]
    same += ["--allow", "data.example:443", "--credentials", "gateway", "--workers", "1", "--max-in-flight", "64"]
    undertaken(record, option, *same, *(CREDENTIALS if option == "--resume" else ()))


@pytest.mark.parametrize("option", ["--resume", "--replay"])
@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("--group-size 3", "--group-size 3 contradicts the record, which was made with 2"),
        ("--max-examples 2", "--max-examples 2 contradicts the record, which was made with 1"),
        ("--max-in-flight 2", "--max-in-flight 2 contradicts the record, which was made with 64"),
        ("--workers 2", "--workers 2 contradicts the record, which was made with 1"),
        ("--split train", "--split train contradicts the record, which was made with eval"),
        ("--sandbox off", "--sandbox off contradicts the record, which was made with auto"),
        ("--network open", "--network open contradicts the record, which was made with model-only"),
        ("--timeout 5", "--timeout 5.0 contradicts the record, which was made with 7"),
        ("--credentials headers", "--credentials headers contradicts the record, which was made with gateway"),
        ("--model local", "--model local contradicts the record, which was made with m"),
        ("--base-url http://x/v1", "--base-url http://x/v1 contradicts .* made with https://models.example/v1"),
        ("--allow other.example:1", "--allow other.example:1 contradicts .* made with data.example:443"),
        ("somewhere", "somewhere: the artifact comes from the record"),
        ("--secret MORE=env:KEY", "--secret MORE: the record was made without it"),
    ],
)
def test_options_that_contradict_a_record_name_both_values(
    record: RecordFolder, option: str, given: str, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        undertaken(record, option, *given.split(), *(CREDENTIALS if option == "--resume" else ()))
    # and whoever was refused has let go of it
    RecordFolder.open(record.path, claim=True).close()


@pytest.mark.parametrize("given", [CREDENTIALS[:2], CREDENTIALS[2:4]])
def test_a_replay_wants_no_key(record: RecordFolder, given: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"{given[0]} has no use in a replay"):
        undertaken(record, "--replay", *given)


@pytest.mark.parametrize("option", ["--resume", "--replay"])
def test_data_that_has_changed_is_named_and_may_be_elsewhere(record: RecordFolder, tmp_path: Path, option: str) -> None:
    credentials = CREDENTIALS if option == "--resume" else ()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "eval.jsonl").write_text("{}")
    (tmp_path / "data" / "eval.jsonl").write_text("[]")
    with pytest.raises(UsageError, match=r"eval\.jsonl \(changed\)"):
        undertaken(record, option, *credentials)
    assert undertaken(record, option, "--data", str(tmp_path / "kept"), *credentials).plan.data == tmp_path / "kept"
    with pytest.raises(UsageError, match=r"is not at .*none"):
        undertaken(record, option, "--data", str(tmp_path / "none"), *credentials)


def test_only_a_finished_run_is_replayed(record: RecordFolder) -> None:
    (record.path / "report.json").unlink()
    with pytest.raises(UsageError, match=r"was not finished\. .*--resume"):
        undertaken(record, "--replay")


def test_a_script_is_the_same_from_wherever_it_is_named(
    record: RecordFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mock.json").write_text('{"rules": []}')
    plan = plan_of(parse_arguments(["run", "artifact", "--data", "data", "--model", "mock:mock.json"]))
    folder = recorded_run(tmp_path / "more", some_artifact(tmp_path / "artifact"), plan, ended("0-e-0"))
    undertaken(folder, "--replay", "--model", "mock:mock.json")
    with pytest.raises(UsageError, match=r"--model mock:.*other\.json contradicts the record, .* mock:.*mock\.json"):
        undertaken(folder, "--replay", "--model", "mock:other.json")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("artifact --record out2 --credentials headers", "--record needs the gateway, and --credentials is headers"),
        ("artifact --record out2 --network none", "network mode none has no model calls to record"),
        ("artifact --record full", "full: it is not empty"),
        ("artifact --record out", r"out holds a record already\. .*--resume out"),
        ("artifact --record full/mine/x", "cannot record to full/mine/x"),
        ("--record out2", "one of these is required: DIR, --resume OUT or --replay OUT"),
        ("--resume none", "no record at none"),
        ("--replay full", r"full is no record: it holds no record\.json"),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_anything_is_made(
    record: RecordFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("1")
    with pytest.raises(UsageError, match=text):
        execute(parse_arguments(["run", "--data", "data", *given.split()]))
    assert not (tmp_path / "out2").exists()
