"""`benchmax inspect`: an artifact of anybody's on a terminal, with nothing of it executed."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest

from benchmax.bundle import bundle_digest
from runner.artifact import read_artifact
from tests.hostile.assembling import call, name, pickle_of, text
from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration

BUNDLES = Path(__file__).parents[1] / "fixtures" / "contract" / "bundles"


@pytest.fixture
def benchmax(tmp_path: Path) -> CommandLine:
    # it needs no cache
    return CommandLine(Path("/dev/null/cache"), tmp_path)


def copied(benchmax: CommandLine, bundle: str, pickled: bytes | None = None) -> Path:
    folder = Path(shutil.copytree(BUNDLES / bundle, benchmax.cwd / "artifact"))
    if pickled is not None:
        (folder / "env-cls.pkl").write_bytes(pickled)
    return folder


def test_a_bundle_made_elsewhere_is_shown_with_all_that_is_in_it(benchmax: CommandLine) -> None:
    folder = copied(benchmax, "tools")
    shown = benchmax("inspect", "artifact").good()
    for part in (
        bundle_digest(read_artifact(folder).bundle),
        "requires tabulate>=0.9",
        "class    Tools",
        "judge = benchmax.rewards.judge.Judge(…)",
        "class Tools(benchmax.envs.base.env.BaseEnv) of envs_vec",
        "async def compute_reward(self, rollout: BaseRollout) line 55",
        "benchmax.envs.base.dataset: JsonlDataset",
        "max_turns = 4",
        "as its author recorded it, which the pickle need not agree with",
        "return JsonlDataset(Path(base_dir)",
        "nothing here makes a bundle safe",
    ):
        assert part in shown, part
    assert "findings" not in shown


def test_all_of_it_is_there_as_json(benchmax: CommandLine) -> None:
    copied(benchmax, "plain")
    finished = benchmax("inspect", "artifact", "--json")
    told = json.loads(finished.good())
    assert told["format"] == 1
    assert told["python_version"] == "3.12"
    assert told["pickle"]["environment"] == "Plain"
    assert told["pickle"]["arguments"] == {"scale": "0.5", "where": "'here'"}
    assert told["pickle"]["findings"] == []
    assert told["authors_facts"] is None
    assert "class    Plain" in finished.err


def test_an_artifact_of_our_own_is_good(benchmax: CommandLine) -> None:
    benchmax.artifact(size=3)
    shown = benchmax("inspect", "artifact").good()
    assert "size = 3" in shown
    assert "class    Tiny" in shown
    assert "def __init__(self, mode='good', size=2, marker=None)" in shown
    # what its code refers to, which is no finding against it
    assert "danger" not in shown


def test_a_pickle_that_does_something_when_it_is_loaded_is_the_bundles_fault(benchmax: CommandLine) -> None:
    copied(benchmax, "plain", pickle_of(call(name("os", "mkdir"), text("made"))))
    finished = benchmax("inspect", "artifact")
    assert finished.code == 1
    assert "danger   calls os.mkdir while it is loaded, which reads or changes files (byte " in finished.out
    assert "a danger is what no packing of an environment asks for" in finished.out
    assert not (benchmax.cwd / "made").exists()


@pytest.mark.parametrize(
    ("pickled", "says"),
    [
        (b"garbage", "broken: loading it fails"),
        (pickle.dumps([1, 2, 3])[:-1], "it is cut short"),
        (b"PK\x03\x04" + bytes(100), "broken: loading it fails"),
        (b"\xff" * 100, "no pickle has an instruction 0xff"),
    ],
)
def test_a_pickle_that_is_none_is_the_bundles_fault(benchmax: CommandLine, pickled: bytes, says: str) -> None:
    copied(benchmax, "plain", pickled)
    finished = benchmax("inspect", "artifact")
    assert finished.code == 1
    assert says in finished.out
    assert "Traceback" not in finished.err
    assert "Bundle the environment again" in finished.out


def test_a_pickle_that_was_not_followed_to_its_end_could_not_be_judged(benchmax: CommandLine) -> None:
    copied(benchmax, "plain", b"\x80\x04" + b"N" * 2_100_000 + b".")
    finished = benchmax("inspect", "artifact")
    assert finished.code == 3
    assert "only part of it was looked at: it holds more than 2,000,000 values at once" in finished.out


def test_a_file_without_end_is_refused_before_it_is_in_memory(benchmax: CommandLine) -> None:
    # a file that takes no space on the disk
    with (copied(benchmax, "plain") / "env-metadata.json").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert "env-metadata.json is larger than 4,194,304 bytes" in benchmax("inspect", "artifact").error(1)


def test_its_authors_facts_are_shown_as_a_claim(benchmax: CommandLine) -> None:
    folder = copied(benchmax, "plain")
    facts = {
        "format": 1,
        "digest": read_artifact(folder).digest,
        "cloudpickle_version": "3.1.1",
        "by_value": [{"name": "envs_vec", "bytes": 3_400}],
        "by_reference": [{"module": "numpy", "source": "numpy"}, {"module": "odd", "source": ""}],
    }
    (folder / "env-facts.json").write_text(json.dumps(facts))
    shown = benchmax("inspect", "artifact").good()
    assert "which the pickle need not agree with" in shown
    assert "by value envs_vec, 3,400 bytes" in shown
    assert "by reference numpy (numpy), odd (from where is unknown)" in shown
    assert "not to be relied on" not in shown
    (folder / "env-facts.json").write_text(json.dumps({**facts, "digest": "0" * 64}))
    assert "not to be relied on: it is about another artifact" in benchmax("inspect", "artifact").good()


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"format": 1, "by_value": {"a": [[]]}}'])
def test_facts_of_any_shape_disturb_nothing(benchmax: CommandLine, data: bytes) -> None:
    (copied(benchmax, "plain") / "env-facts.json").write_bytes(data)
    finished = benchmax("inspect", "artifact", "--json")
    assert json.loads(finished.good())["authors_facts"]["trouble"]
    assert "not to be relied on" in finished.err


def test_source_is_coloured_on_a_terminal_and_plain_elsewhere(benchmax: CommandLine) -> None:
    copied(benchmax, "plain")
    assert "\x1b" not in benchmax("inspect", "artifact").good()
    coloured = benchmax("inspect", "artifact", env={"FORCE_COLOR": "1", "TERM": "xterm-256color"}).good()
    assert "\x1b[" in coloured


def test_source_comes_from_the_facts_where_the_metadata_has_none(benchmax: CommandLine) -> None:
    folder = copied(benchmax, "plain")
    metadata = json.loads((folder / "env-metadata.json").read_text())
    (folder / "env-metadata.json").write_text(json.dumps({**metadata, "env_class_source": None}))
    assert "not recorded" in benchmax("inspect", "artifact").good()
    (folder / "env-facts.json").write_text(json.dumps({"format": 1, "source": "class FromTheFacts: ..."}))
    assert "class FromTheFacts: ..." in benchmax("inspect", "artifact").good()
