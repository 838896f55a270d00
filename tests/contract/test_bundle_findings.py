"""What is wrong with an environment is found before it is packed: each kind with its path and its line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.bundle_lab import Lab, Project, new_project
from tests.contract.findings_lab import SECRET, examined

FIXTURES = Path(__file__).parents[1] / "fixtures" / "authoring"


KINDS: dict[str, tuple[str, str, str]] = {
    "annotations": ("warning", "unresolved-annotation", "Env.score → globals['search'] → annotation['kind']"),
    "asking_for_its_file": ("error", "module-file", "Env.score → globals['__file__']"),
    "cached_function": ("error", "by-name-only", "Env.score → globals['load'] (functools._lru_cache_wrapper)"),
    "cached_method": ("error", "by-name-only", "Env.score (functools._lru_cache_wrapper)"),
    "context_variable": ("error", "unpicklable", "Env.score → globals['current'] (_contextvars.ContextVar)"),
    "copied_environment": ("error", "environment-captured", "Env.score → globals['SETTINGS']"),
    "fixed_token": ("error", "secret-captured", "Env.score → globals['AUTH']"),
    "generator": ("error", "unpicklable", "Env.score → globals['numbers'] (builtins.generator)"),
    "http_client": ("error", "unpicklable", "Env.score → globals['client']…"),
    "large_global": ("warning", "oversized", "Env.score → globals['TABLE']"),
    "late_import": ("error", "delayed-import", "Env.score → import beside"),
    "late_import_in_a_base": ("error", "delayed-import", "Scoring.score → import beside"),
    "lock": ("error", "unpicklable", "Env.score → globals['LOCK'] (_thread.lock)"),
    "log_handler": ("error", "unpicklable", "Env.score → default[0]…"),
    "logger_with_handler": ("warning", "logger-handlers", "Env.score → globals['log'] (logging.Logger)"),
    "open_file": ("error", "unpicklable", "Env.score → globals['SOURCE'] (_io.BufferedReader)"),
    "package_data": ("error", "module-file", "Env.score → globals['__name__']"),
    "password_in_url": ("error", "secret-captured", "Env.score → globals['DATABASE']"),
    "path_argument": ("warning", "author-path", "constructor_args['folder']"),
    "path_beside_module": ("error", "author-path", "Env.score → globals['ROWS']"),
    "secret_argument": ("error", "secret-captured", "constructor_args['api_key']"),
    "secret_in_closure": ("error", "secret-captured", "Env.score → closure['key']"),
    "secret_in_code": ("error", "secret-captured", "Env.score → constant"),
    "state_in_called_method": ("warning", "shared-state", "Env.score → self.count"),
    "state_in_environment": ("warning", "process-state", "Env.score → os.environ[…]"),
    "state_in_global": ("warning", "shared-state", "Env.score → global count"),
    "state_on_instance": ("warning", "shared-state", "Env.run_rollout → self.turns"),
    "undeclared_package": ("error", "undeclared-dependency", "Env.score → globals['sniff']"),
    "undeclared_package_late": ("warning", "undeclared-dependency", "Env.score → import iniconfig"),
    "weak_dictionary": ("error", "unpicklable", "Env.known…"),
    "whole_environment": ("error", "environment-captured", "Env.score → globals['environ']"),
    "working_directory": ("warning", "process-state", "Env.score → os.chdir(…)"),
}
"""By kind: severity, code and path; `…` at the end of a path stands for what the object keeps inside."""

ARGUMENTS = {
    "path_argument": "{'folder': os.getcwd()}",
    "secret_argument": "{'api_key': 'in-no-variable-0123'}",
}
"""Constructor arguments of the broken version."""

RUN = """
    import asyncio, pathlib, pickle
    from benchmax.auth import StaticBearerAuth
    from benchmax.bundle import load_bundle
    from benchmax.envs import RolloutRequest
    async def run():
        with open({file!r}, "rb") as file:
            env = load_bundle(pickle.load(file))
        [example] = await env.create_dataset("eval", pathlib.Path.cwd())
        request = RolloutRequest("r", example, "m", "http://localhost", StaticBearerAuth("t"))
        outcome = (await env.run_group([request]))["r"]
        return [outcome.termination_reason, outcome.error, sorted(outcome.rewards)]
    result = asyncio.run(run())
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


def project_of(lab: Lab, tmp_path: Path, kind: str) -> Project:
    project = new_project(lab, tmp_path, marked=False)
    shutil.copytree(FIXTURES / kind, project.root, dirs_exist_ok=True)
    return project


def marked_line(file: Path) -> int:
    [line] = [number for number, text in enumerate(file.read_text().splitlines(), 1) if "# here" in text]
    return line


def test_every_kind_has_its_two_versions() -> None:
    assert {path.name for path in FIXTURES.iterdir()} == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_found_with_its_path_and_line(lab: Lab, tmp_path: Path, kind: str) -> None:
    project = project_of(lab, tmp_path, kind)
    severity, code, what = KINDS[kind]
    [found] = examined(project, "broken", ARGUMENTS.get(kind, "{}"))
    assert (found["severity"], found["code"]) == (severity, code)
    assert found["what"].startswith(what[:-1]) if what.endswith("…") else found["what"] == what
    assert found["fix"]
    if kind in ARGUMENTS:
        assert (found["file"], found["line"]) == ("", 0)
    else:
        assert found["file"] == str(project.root / "broken.py")
        assert found["line"] == marked_line(project.root / "broken.py")


@pytest.mark.parametrize("kind", KINDS)
def test_the_mended_version_has_nothing_to_find_and_runs_elsewhere(lab: Lab, tmp_path: Path, kind: str) -> None:
    project = project_of(lab, tmp_path, kind)
    pack = f"    import pickle\n    pickle.dump(report.bundle, open({str(project.bundle_file)!r}, 'wb'))\n"
    assert examined(project, "fixed", more=pack) == []
    shutil.rmtree(project.root)
    ran = lab.run(RUN.format(file=str(project.bundle_file)), cwd=project.elsewhere)
    assert ran == ["finished", None, ["score"]]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "secret" in kind or "environment" in kind])
def test_no_finding_shows_the_secret(lab: Lab, tmp_path: Path, kind: str) -> None:
    project = project_of(lab, tmp_path, kind)
    told = str(examined(project, "broken", ARGUMENTS.get(kind, "{}")))
    assert SECRET not in told
    assert "in-no-variable" not in told
    assert not re.search(r"sk-\w{8}", told)
