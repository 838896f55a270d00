"""What a model's name means, how its server is started, and what it may announce."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.auth import ModelAuth, ModelRequestContext
from runner.errors import EndpointError, UsageError
from runner.models import (
    LOCAL_FOLLOW_DEPENDENCIES,
    LOCAL_MODEL,
    LOCAL_REQUIREMENTS,
    ModelChoice,
    SampleAuth,
    local_command,
    mock_command,
    parse_model,
    read_announcement,
)


def test_mock_and_local_are_known_without_a_base_url() -> None:
    assert parse_model("mock", base_url=None) == ModelChoice(kind="mock", model="mock")
    assert parse_model("local", base_url=None) == ModelChoice(kind="local", model=LOCAL_MODEL)


def test_a_script_after_mock_is_checked_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answers.json").write_text('{"rules": []}')
    monkeypatch.chdir(tmp_path)
    assert parse_model("mock:answers.json", base_url=None).script == tmp_path / "answers.json"
    (tmp_path / "answers.json").write_text('{"rule": []}')
    with pytest.raises(UsageError, match=r"answers\.json.*rule"):
        parse_model("mock:answers.json", base_url=None)


@pytest.mark.parametrize("name", ["gpt-x", "mock", "local", "mock:whatever", "a name: with/anything"])
def test_with_a_base_url_any_name_goes_to_that_server(name: str) -> None:
    choice = parse_model(name, base_url="http://127.0.0.1:8000/v1")
    assert choice == ModelChoice(kind="endpoint", model=name, base_url="http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-x", "without a base URL there are `mock`, `mock:SCRIPT` and `local`"),
        ("gpt-x", "--base-url"),
        ("locl", "Did you mean `local`"),
        ("Mock", "Did you mean `mock`"),
        ("moc:script.json", "Did you mean `mock`"),
        ("", "is empty"),
        ("  ", "is empty"),
        ("mock:", "is a folder"),
        ("mock:nowhere.json", "nowhere.json cannot be read: No such file"),
    ],
)
def test_other_names_are_usage_errors_that_say_what_exists(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_model(name, base_url=None)
    assert said in str(caught.value)


def test_commands_are_data_and_get_the_descriptor_last(tmp_path: Path) -> None:
    mock = mock_command(tmp_path / "s.json", python="/usr/bin/python3")
    assert mock.argv(7)[:1] == ["/usr/bin/python3"]
    assert mock.argv(7)[-4:] == ["--script", str(tmp_path / "s.json"), "--announce-fd", "7"]
    assert mock_command().argv(3)[-3:] == ["runner.models.mock_server", "--announce-fd", "3"]
    local = local_command(Path("/venv/bin/python"), model="tiny", parallel=8, threads=2)
    assert local.model == "tiny"
    script = next(part for part in local.argv(5) if part.endswith(".py"))
    assert Path(script).is_file()
    assert local.argv(5)[-8:] == ["--model", "tiny", "--parallel", "8", "--threads", "2", "--announce-fd", "5"]


@pytest.mark.parametrize(("parallel", "threads"), [(0, None), (4, 0)])
def test_the_local_model_needs_at_least_one_slot_and_thread(parallel: int, threads: int | None) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        local_command(Path("python"), model="tiny", parallel=parallel, threads=threads)


def test_the_local_model_is_pinned_and_its_dependencies_are_not_followed() -> None:
    assert all("==" in requirement for requirement in LOCAL_REQUIREMENTS)
    assert LOCAL_FOLLOW_DEPENDENCIES is False


def test_an_announcement_names_url_and_model() -> None:
    announcement = read_announcement(b'{"base_url": "http://127.0.0.1:8123/v1", "model": "mock"}\n')
    assert (announcement.base_url, announcement.model) == ("http://127.0.0.1:8123/v1", "mock")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"ready\n",
        b"[" * 5000,
        b"\xff\n",
        b'{"base_url": "http://127.0.0.1:8123/v1"}\n',
        b'{"base_url": "http://example.org:8123/v1", "model": "mock"}\n',
        b'{"base_url": "http://127.0.0.1:8123/v1\\n", "model": "mock"}\n',
        b'{"base_url": "http://127.0.0.1:99999/v1", "model": "mock"}\n',
        b'{"base_url": "http://127.0.0.1:8123/v1", "model": ""}\n',
        b'{"base_url": "http://127.0.0.1:8123/v1", "model": "mock", "more": 1}\n',
    ],
)
def test_anything_else_is_no_announcement(line: bytes) -> None:
    with pytest.raises(EndpointError):
        read_announcement(line)


@pytest.mark.parametrize(
    ("rollout_id", "headers"),
    [
        ("0-deadbeef-3", {"Authorization": "Bearer benchmax-sample-3", "X-Benchmax-Sample": "3"}),
        ("12-deadbeef-0", {"Authorization": "Bearer benchmax-sample-0", "X-Benchmax-Sample": "0"}),
        ("anything", {"Authorization": "Bearer benchmax-sample"}),
        ("3", {"Authorization": "Bearer benchmax-sample"}),
        ("a-99999999999", {"Authorization": "Bearer benchmax-sample"}),
    ],
)
async def test_sample_auth_says_which_sibling_asks(rollout_id: str, headers: dict[str, str]) -> None:
    auth: ModelAuth = SampleAuth()
    assert await auth.headers_for_request(ModelRequestContext("http://m/v1", "mock", rollout_id)) == headers


def test_importing_the_package_loads_no_http_stack() -> None:
    heavy = {"starlette", "uvicorn", "httpx", "openai", "xllamacpp"}
    code = f"import sys, runner.models; print(sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
