"""`benchmax bundle` says what is wrong with an environment, and writes nothing that would fail elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from runner.errors import RemoteError
from runner.packing import PackRequest, pack
from runner.provision import Cache
from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration

AUTHORING = Path(__file__).parents[1] / "fixtures" / "authoring"
SECRET = "zq-" + "0123456789" * 2

CONSTRUCTED = """
import os
from benchmax.envs import Dataset, Environment, Example, RolloutAttempt

class Env(Environment):
    def __init__(self):
        {line}

    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([Example("only", {{}})])

    async def run_rollout(self, request):
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={{"score": 1.0}})
"""


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


def authored(benchmax: CommandLine, kind: str) -> None:
    shutil.copytree(AUTHORING / kind, benchmax.cwd, dirs_exist_ok=True)


def constructed(benchmax: CommandLine, line: str) -> None:
    (benchmax.cwd / "env.py").write_text(CONSTRUCTED.format(line=line))


def test_errors_are_shown_with_their_lines_and_nothing_is_written(benchmax: CommandLine) -> None:
    authored(benchmax, "lock")
    refused = benchmax("bundle", "broken.py:Env", "--here", "--out", "new")
    assert refused.code == 1
    assert "error: unpicklable: Env.score → globals['LOCK'] (_thread.lock), broken.py:7\n" in refused.out
    assert refused.out.endswith("broken.py:Env is not bundled: 1 error. Nothing was written.\n")
    assert not (benchmax.cwd / "new").exists()


def test_the_same_as_json(benchmax: CommandLine) -> None:
    authored(benchmax, "whole_environment")
    refused = benchmax("bundle", "broken.py:Env", "--here", "--out", "new", "--json", env={"FAKE_API_KEY": SECRET})
    facts = json.loads(refused.out)
    assert (refused.code, facts["written"]) == (1, False)
    [found] = facts["findings"]
    assert (found["severity"], found["code"], found["accepted"]) == ("error", "environment-captured", False)
    assert found["file"] == str(benchmax.cwd / "broken.py")
    assert found["line"] == 3
    assert SECRET not in refused.out + refused.err


def test_warnings_are_shown_and_the_artifact_is_written_with_its_facts(benchmax: CommandLine) -> None:
    authored(benchmax, "state_on_instance")
    bundled = benchmax("bundle", "broken.py:Env", "--out", "new", "--json", makes="new")
    told = json.loads(bundled.good())
    assert [one["code"] for one in told["findings"]] == ["shared-state"]
    assert "warning: shared-state: Env.run_rollout → self.turns, broken.py:11" in bundled.err
    facts = json.loads((benchmax.cwd / "new" / "env-facts.json").read_bytes())
    assert facts["digest"] == told["digest"]
    assert facts["by_value"] == told["by_value"]
    assert [one["name"] for one in facts["by_value"]] == ["broken"]


def test_an_error_that_is_accepted_is_shown_and_written(benchmax: CommandLine) -> None:
    authored(benchmax, "fixed_token")
    command = ["bundle", "broken.py:Env", "--here", "--no-verify", "--out", "new"]
    assert benchmax(*command).code == 1
    assert "accepted: secret-captured: " in benchmax(*command, "--accept", "secret-captured", makes="new").good()


def test_a_kind_that_there_is_not_cannot_be_accepted(benchmax: CommandLine) -> None:
    authored(benchmax, "lock")
    said = benchmax("bundle", "broken.py:Env", "--out", "new", "--accept", "everything").error(2)
    assert "--accept everything: no such finding" in said
    assert "unpicklable" in said


def test_a_bundle_that_does_not_construct_elsewhere_is_refused_with_the_line(benchmax: CommandLine) -> None:
    constructed(benchmax, "self.rows = open(os.environ['ROWS_OF_THE_AUTHOR']).read()")
    rows = benchmax.cwd / "env.py"
    command = ["bundle", "env.py:Env", "--out", "new"]
    refused = benchmax(*command, env={"ROWS_OF_THE_AUTHOR": str(rows)})
    assert refused.code == 1
    assert "error: does-not-load: the bundle, env.py:7\n" in refused.out
    assert "KeyError: 'ROWS_OF_THE_AUTHOR'" in refused.out
    assert not (benchmax.cwd / "new").exists()


def test_a_variable_that_the_constructor_needs_can_be_handed_over(benchmax: CommandLine) -> None:
    constructed(benchmax, "self.size = len(os.environ['JUDGE_KEY'])")
    command = ["bundle", "env.py:Env", "--out", "new", "--secret", "JUDGE_KEY=env:FAKE_API_KEY"]
    benchmax(*command, makes="new", env={"FAKE_API_KEY": SECRET}).good()
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in (benchmax.cwd / "new").iterdir())


def test_what_is_not_to_be_verified_is_written_as_it_is(benchmax: CommandLine) -> None:
    constructed(benchmax, "raise ValueError('never')")
    benchmax("bundle", "env.py:Env", "--out", "new", "--no-verify", makes="new").good()


def test_where_verifying_is_not_possible_it_is_said_and_the_artifact_written(benchmax: CommandLine) -> None:
    constructed(benchmax, "pass")
    nowhere = {"BENCHMAX_CACHE_DIR": "/dev/null/cache"}
    out = benchmax("bundle", "env.py:Env", "--here", "--out", "new", makes="new", env=nowhere).good()
    assert "warning: not-verified: " in out


def test_a_package_that_only_the_author_has_is_named(benchmax: CommandLine) -> None:
    authored(benchmax, "undeclared_package")
    refused = benchmax("bundle", "broken.py:Env", "--here", "--out", "new")
    assert refused.code == 1
    assert "undeclared-dependency: Env.score → globals['sniff'], broken.py:3\n" in refused.out
    assert "--pip iniconfig" in refused.out


def test_what_can_be_pickled_and_not_loaded_is_refused(benchmax: CommandLine) -> None:
    constructed(benchmax, "self.failure = FAILURE")
    with (benchmax.cwd / "env.py").open("a") as module:
        module.write(
            "\nclass Failure(Exception):\n    def __init__(self, what, why):\n        super().__init__(what)\n"
            "\nFAILURE = Failure('this', 'that')\n"
        )
    refused = benchmax("bundle", "env.py:Env", "--out", "new")
    assert refused.code == 1
    assert "error: does-not-load: the bundle" in refused.out
    assert "missing 1 required positional argument: 'why'" in refused.out


async def test_packing_from_python_raises_with_all_that_is_wrong(
    shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(AUTHORING / "lock", tmp_path, dirs_exist_ok=True)
    request = PackRequest(target="broken.py:Env", here=True)
    with pytest.raises(
        RemoteError, match=r"broken.py:Env is not bundled: unpicklable: Env.score → globals\['LOCK'\]"
    ) as it:
        await pack(request, tmp_path / "new", cache=Cache(shared_cache))
    assert f"{tmp_path / 'broken.py'}:7" in it.value.detail
    assert "Make it inside a function" in it.value.hint
    assert not (tmp_path / "new").exists()
