"""Command-line values that are read by the commands themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.cli.bundle import constructor_arguments
from runner.cli.credentials import bindings, secret
from runner.cli.parser import parse_arguments
from runner.cli.run import check_writable, plan_of, write_report
from runner.cli.syntax import count, seconds
from runner.errors import UsageError


def test_constructor_arguments_are_json_by_name() -> None:
    texts = ["size=120", 'name="a=b"', 'nested={"a": [1, null]}']
    assert constructor_arguments(texts) == {"size": 120, "name": "a=b", "nested": {"a": [1, None]}}


@pytest.mark.parametrize("text", ["size", "=1", "not-a-name=1", "size=", "size=" + "[" * 100_000])
def test_a_constructor_argument_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--arg"):
        constructor_arguments([text])


@pytest.mark.parametrize("text", ["1", "64"])
def test_counts(text: str) -> None:
    assert count(text) == int(text)


def test_times_may_have_fractions() -> None:
    assert seconds("0.5") == 0.5


def test_a_binding_covers_its_url_and_never_shows_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sesame-open")
    found = bindings(["judge=env:JUDGE_KEY@https://judge.example/v1/a@c"])
    assert found["judge"].urls == ("https://judge.example/v1/a@c",)
    assert "sesame-open" not in repr(found)


@pytest.mark.parametrize("value", ["", "  ", "sesame\n", "schlüssel"])
def test_a_variable_that_cannot_be_a_key_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(UsageError, match="--api-key-env: the environment variable SOME_KEY") as caught:
        secret("SOME_KEY", "--api-key-env")
    assert value.strip() == "" or value.strip() not in str(caught.value)


@pytest.mark.parametrize("given", ["sk-live-123", "", "a b"])
def test_a_key_in_place_of_its_variable_is_not_repeated(given: str) -> None:
    for read in (lambda: secret(given, "--api-key-env"), lambda: bindings([f"judge=env:{given}@http://x"])):
        with pytest.raises(UsageError, match="wants the name of an environment variable") as caught:
            read()
        assert "live" not in str(caught.value)
    with pytest.raises(UsageError, match=r"--auth judge=… is not of the form") as caught:
        bindings([f"judge={given}@http://x"])
    assert "live" not in str(caught.value)


def test_checking_that_a_report_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "report.json")
    assert [*tmp_path.iterdir()] == []


def test_a_report_that_cannot_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    write_report(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_what_a_command_line_does_not_say_is_as_a_plan_has_it() -> None:
    arguments = parse_arguments(["run", "folder"])
    assert (arguments.dir, arguments.json) == (Path("folder"), False)
    plan = plan_of(arguments)
    assert (plan.data, plan.split, plan.model.kind) == (Path(), "eval", "mock")
    assert (plan.group_size, plan.workers, plan.max_in_flight) == (4, 1, 64)
    assert (plan.sandbox, plan.network, plan.credentials) == ("auto", "open", None)
