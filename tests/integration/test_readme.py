"""What README and CHANGELOG say is true: their code runs, their tables are complete, their version is ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from runner.errors import RunnerError

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def benchmax(*arguments: str, folder: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("benchmax")), *arguments]
    environ = {**os.environ, "BENCHMAX_CACHE_DIR": str(cache)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_environment_runs_as_the_readme_says(shared_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "capitals.py").write_text(blocks("python")[0])
    shown = blocks("console")[0]
    (commands,) = [line for line in shown.splitlines() if line.startswith("$ ")]
    bundle, run = (command.split()[1:] for command in commands.removeprefix("$ ").split(" && "))
    bundled = benchmax(*bundle, folder=tmp_path, cache=shared_cache)
    assert bundled.returncode == 0, bundled.stderr
    ran = benchmax(*run, folder=tmp_path, cache=shared_cache)
    assert ran.returncode == 0, ran.stderr

    def columns(text: str) -> list[str]:
        (header,) = [line for line in text.splitlines() if line.startswith("rollout ")]
        return header.split()

    def ids(text: str) -> list[str]:
        return re.findall(r"^\d-\w+-\d", text, flags=re.MULTILINE)

    assert columns(ran.stdout) == columns(shown)
    assert ids(ran.stdout) == ids(shown)
    assert re.search(r"^12 ok · 0 failed · 0 missing of 12 rollouts", ran.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize("code", blocks("python"))
def test_every_python_block_compiles(code: str) -> None:
    compile(code, "README.md", "exec")


def test_the_error_table_is_the_error_tree() -> None:
    def below(kind: type[RunnerError]) -> list[type[RunnerError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    rows = re.findall(r"^\| `(\w+Error)` \| `([\w-]+)` \| (\w+) \|$", README, flags=re.MULTILINE)
    real = [kind for kind in below(RunnerError)[1:] if kind.__module__ == "runner.errors"]
    assert sorted(rows) == sorted((kind.__name__, kind.code, kind.fault) for kind in real)


def test_the_dependency_table_names_every_dependency() -> None:
    section = README.partition("## Dependencies")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE) for name in re.findall("`(.*?)`", row)
    }
    assert named == {Requirement(text).name for text in PROJECT["dependencies"]}


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_newest_changes_are_of_this_version() -> None:
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"]
