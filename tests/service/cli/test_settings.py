"""Settings of a service: where they come from, which of them wins, and that all mistakes are told at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from runner.errors import SettingsError
from runner.service.configuration import PREFIX, read_settings, variable_of, variables_of
from runner.service.settings import SECTIONS, BindingSettings, Settings


def file_of(folder: Path, text: str) -> Path:
    path = folder / "service.toml"
    path.write_text(text)
    return path


def problems(*arguments: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        read_settings(*arguments)  # type: ignore[arg-type]
    assert all(text in str(caught.value) for text in (part.rstrip(".") for part in caught.value.problems))
    return caught.value.problems


def test_nothing_has_to_be_set(tmp_path: Path) -> None:
    settings = read_settings(None, {"BENCHMAX_SERVE_DATA": str(tmp_path)})
    assert (settings.server.host, settings.server.port, settings.model.name) == ("127.0.0.1", 8321, "mock")
    assert settings.public_url == "http://127.0.0.1:8321"
    assert settings.database_url == f"sqlite:///{tmp_path}/benchmax.db"
    assert settings.blobs_url == f"file://{tmp_path}/blobs"


def test_without_a_folder_it_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert read_settings().server.data == tmp_path / "benchmax" / "service"


def test_options_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, '[server]\nport = 1\nhost = "::1"\n[executors]\ncount = 1\n[limits]\nfiles = 7\n')
    environ = {"BENCHMAX_SERVE_PORT": "2", "BENCHMAX_SERVE_EXECUTORS_COUNT": "2"}
    settings = read_settings(path, environ, {"executors.count": ("--executors", 3)})
    assert (settings.server.port, settings.executors.count, settings.limits.files) == (2, 3, 7)
    assert settings.public_url == "http://[::1]:2"


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, "[server]\nport = 9\n")
    assert read_settings(None, {"BENCHMAX_SERVE_CONFIG": str(path)}).server.port == 9


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = file_of(tmp_path, '[server]\ndata = "kept/here"\n')
    assert read_settings(path).server.data == tmp_path / "kept" / "here"


def test_an_empty_variable_is_as_good_as_none() -> None:
    assert read_settings(None, {"BENCHMAX_SERVE_PORT": "", "BENCHMAX_SERVE_CONFIG": " "}).server.port == 8321


@pytest.mark.parametrize(("text", "value"), [("true", True), ("No", False), ("1", True)])
def test_variables_say_yes_and_no(text: str, value: bool) -> None:
    settings = read_settings(None, {"BENCHMAX_SERVE_EXECUTORS_INSECURE_SANDBOX": text})
    assert settings.executors.insecure_sandbox is value


def test_bindings_have_a_table_each_and_their_keys_come_from_variables(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        """
        [model]
        name = "big"
        base_url = "https://models.example/v1"
        api_key_env = "MODEL_KEY"

        [bindings.judge]
        base_url = "https://judge.example/v1"
        api_key_env = "JUDGE_KEY"
        models = ["judge-1"]
        """,
    )
    environ = {"MODEL_KEY": "sesame-1", "JUDGE_KEY": "sesame-2"}
    settings = read_settings(path, environ)
    judge = settings.bindings["judge"]
    assert judge == BindingSettings(
        base_url="https://judge.example/v1", api_key_env="JUDGE_KEY", models=("judge-1",), key="sesame-2"
    )
    assert (settings.model.choice().kind, settings.model.key) == ("endpoint", "sesame-1")
    assert settings.model.auth() is not None
    assert "sesame" not in repr(settings)


def test_every_setting_can_be_given_by_a_file_and_by_a_variable(tmp_path: Path) -> None:
    lines, environ = [], {}
    for section, kind in SECTIONS.items():
        lines.append(f"[{section}]")
        for item in dataclasses.fields(kind):
            if "from" in item.metadata:
                continue
            default = getattr(kind(), item.name)
            special = {
                "public_url": "https://x.example",
                "database.url": "sqlite:///x.db",
                "blobs.url": "s3://bucket",
                "model.base_url": "https://m.example/v1",
                "api_key_env": "KEY",
            }
            value = special.get(f"{section}.{item.name}", special.get(item.name, default))
            if isinstance(value, tuple):
                lines.append(f'{item.name} = ["10.0.0.1"]')
                environ[variable_of(section, item.name)] = "10.0.0.1"
            else:
                text = str(tmp_path) if isinstance(value, Path) else str(value)
                quoted = f'"{text}"' if isinstance(value, (str, Path)) else text.lower()
                lines.append(f"{item.name} = {quoted}")
                environ[variable_of(section, item.name)] = text
    path = file_of(tmp_path, "\n".join(lines))
    assert read_settings(path, {"KEY": "k"}) == read_settings(None, {**environ, "KEY": "k"})


def test_another_process_is_given_the_same_settings(tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        """
        server = { port = 0, trusted_proxies = ["10.0.0.1", "10.0.0.2"] }
        executors = { insecure_sandbox = true, lease_s = 2.5 }
        database = { url = "postgresql://me:sesame@db/x" }
        [bindings."Odd name"]
        base_url = "https://judge.example/v1"
        api_key_env = "JUDGE_KEY"
        models = ["a,b", "c"]
        """,
    )
    environ = {"JUDGE_KEY": "open-sesame"}
    settings = read_settings(path, environ)
    variables = variables_of(settings)
    assert read_settings(None, {**environ, **variables}) == settings
    assert "open-sesame" not in str(variables)


def test_the_defaults_need_no_variables() -> None:
    assert variables_of(Settings()) == {}


MISTAKES = """
[server]
prt = 1
port = "x"
host = "0.0.0.0"
[limits]
upload_bytes = 0
session_s = true
[modell]
name = "mock"
[model]
name = "gpt-4"
[bindings.judge]
models = ["a"]
[bindings.embedding]
base_url = "embedder"
[database]
url = "mysql://sesame@x"
"""


def test_all_mistakes_are_told_at_once_with_place_and_fix(tmp_path: Path) -> None:
    path = file_of(tmp_path, MISTAKES)
    environ = {
        "BENCHMAX_SERVE_PRT": "1",
        "BENCHMAX_SERVE_BLOBS_URL": "gs://x",
        "BENCHMAX_SERVE_EXECUTORS_INSECURE_SANDBOX": "maybe",
    }
    told = problems(path, environ, {"executors.count": ("--executors", -1)})
    wanted = [
        f"{path}, [server] prt: there is no such setting. Did you mean port?",
        f"{path}, [server] port: must be a whole number from 0 to 65535, got 'x'.",
        f"{path}, [modell]: there is no such setting. Did you mean model?",
        "BENCHMAX_SERVE_PRT: there is no such setting. Did you mean BENCHMAX_SERVE_PORT?",
        "--executors: must be a whole number from 0 to 256, got -1.",
        "BENCHMAX_SERVE_EXECUTORS_INSECURE_SANDBOX: must be true or false, got 'maybe'.",
        f"{path}, [limits] upload_bytes: must be a whole number of at least 1, got 0.",
        f"{path}, [limits] session_s: must be a number of at least 1, got True.",
        "[bindings.judge] base_url: is missing. Say which server it leads to, such as https://host/v1.",
        f"{path}, [bindings.embedding] base_url: is not the base URL of a server. It looks like https://host/v1.",
        "[server] public_url: is missing, and '0.0.0.0' is no address for clients. Say theirs.",
        f"{path}, [database] url: is not the URL of a database. "
        "It looks like sqlite:///FILE or postgresql://HOST/NAME.",
        "BENCHMAX_SERVE_BLOBS_URL: is not the URL of a blob store. It looks like file:///FOLDER or s3://BUCKET/PREFIX.",
    ]
    assert [text for text in wanted if text not in told] == []
    (model,) = [text for text in told if text not in wanted]
    assert model.startswith(f"{path}, [model] name: There is no model `gpt-4`")
    assert "sesame" not in "".join(told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[server", "is not TOML"),
        ("server = 1", "[server]: must be a table. Begin it with [server]."),
        ("[bindings]\njudge = 1", "[bindings.judge]: must be a table. It has base_url, api_key_env and models."),
        ('[server]\npublic_url = "https://x/path"', "public_url: is not an http or https URL without a path"),
        ('[server]\npublic_url = "https://me:sesame@x"', "public_url: is not an http or https URL"),
        ('[server]\npublic_url = "https://x:port"', "public_url: is not an http or https URL"),
        ('[server]\ntrusted_proxies = "10.0.0.1"', "trusted_proxies: must be a list of texts"),
        ("[server]\ndata = 1", "data: must be a path"),
        ('[server]\nhost = "a\\nb"', "host: must be a text of one line"),
        ("[limits]\nsession_s = inf", "session_s: must be a number of at least 1, got inf"),
        ("[executors]\nlease_s = nan", "lease_s: must be a number of at least 2, got nan"),
        ('[model]\napi_key_env = "HOME"', "api_key_env: has no use without base_url"),
        ('[model]\nbase_url = "x"', "base_url: is not the base URL of a server"),
        ('[model]\nname = "mock:nowhere.json"', "[model] name: "),
        ('[database]\nurl = "sqlite://"', "url: is not the URL of a database"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    told = problems(file_of(tmp_path, text), {"HOME": "/root"})
    assert any(said in problem and "service.toml" in problem for problem in told), told
    assert "sesame" not in "".join(told)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "the environment variable KEY is not set. Export it first."),
        ("sesame\n", "the environment variable KEY holds characters that no header can carry."),
        ("schlüssel", "the environment variable KEY holds characters that no header can carry."),
    ],
)
def test_a_key_that_is_none_is_told_without_its_value(value: str, said: str) -> None:
    environ = {f"{PREFIX}MODEL_BASE_URL": "https://x/v1", f"{PREFIX}MODEL_API_KEY_ENV": "KEY", "KEY": value}
    (told,) = problems(None, environ)
    assert said in told
    assert not value.strip() or value.strip() not in told


def test_a_key_in_place_of_its_variable_is_not_repeated() -> None:
    environ = {f"{PREFIX}MODEL_BASE_URL": "https://x/v1", f"{PREFIX}MODEL_API_KEY_ENV": "sk-live-1"}
    (told,) = problems(None, environ)
    assert "must be the name of a variable" in told
    assert "live" not in told


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path / "nowhere.toml") == (
        f"{tmp_path}/nowhere.toml: cannot be read: No such file or directory. Check the path.",
    )


@pytest.mark.parametrize("text", ["[1]", "{", "[" * 100_000])
def test_bindings_of_a_variable_are_a_json_object(text: str) -> None:
    (told,) = problems(None, {"BENCHMAX_SERVE_BINDINGS": text})
    assert told.startswith("BENCHMAX_SERVE_BINDINGS: is not a JSON object.")


def test_the_page_lists_every_setting_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text("utf-8")
    rows = []
    for section, kind in [*SECTIONS.items(), ("bindings.NAME", BindingSettings)]:
        for item in dataclasses.fields(kind):
            if "from" not in item.metadata:
                rows.append(
                    f"| `{section}.{item.name}` | {shown(getattr(kind(), item.name))} | {item.metadata['text']} |"
                )
    assert page.partition("| setting | default | what it is |\n|---|---|---|\n")[2].splitlines() == rows


def shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
    return "none" if value == () else "" if value == Path() else str(value)
