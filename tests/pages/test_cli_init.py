"""`benchmax init`: the projects it makes work as their pages say, and what it cannot make leaves nothing behind."""

from __future__ import annotations

import ast
import builtins
import compileall
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runner.authoring import project as projects
from runner.authoring.names import names_for
from runner.authoring.project import KINDS, TEMPLATES, create_project
from runner.errors import UsageError
from tests.integration.command_line import CommandLine
from tests.pages.running import run_page

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmax(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "cache", tmp_path)


PLAIN_MOCK = """
```console
$ benchmax run bundle {data} --group-size 1 --model mock
…
3 ok · 0 failed · 0 missing of 3 rollouts in …
…
```
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_does_what_its_own_page_says(kind: str, shared_cache: Path, tmp_path: Path) -> None:
    project = create_project(tmp_path / "word-count", kind)
    page = (project.folder / "README.md").read_text()
    # its commands are those that are printed when it is made
    shown = re.findall(r"^\$ (.*)$", page, flags=re.MULTILINE)
    assert list(project.steps[1:]) == shown
    # and the mock model without a script is enough, too
    more = PLAIN_MOCK.format(data="--data data" if "--data data" in page else "")
    run_page(page + more, "README.md", project.folder, shared_cache)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_is_what_there_is(kind: str, benchmax: CommandLine) -> None:
    finished = benchmax("init", "word-count", "--kind", kind, "--json", makes="word-count")
    facts = json.loads(finished.good())
    made = benchmax.cwd / "word-count"
    assert facts["format"] == 1
    assert (facts["path"], facts["kind"], facts["target"]) == ("word-count", kind, "word_count.py:WordCount")
    assert facts["files"] == sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    assert {".gitignore", "README.md", "pyproject.toml", "word_count.py", "tests/test_word_count.py"} <= set(
        facts["files"]
    )
    # the same on standard error, for a person
    for step in facts["next"]:
        assert f"  {step}\n" in finished.err
    for path in made.rglob("*"):
        assert "starter" not in str(path).lower()
        assert path.is_dir() or "starter" not in path.read_text().lower()
    assert f"environment {names_for('word-count').environment} in word_count.py" in finished.err


def test_without_a_kind_it_is_the_simplest(benchmax: CommandLine) -> None:
    benchmax("init", "a", makes="a").good()
    assert create_project(benchmax.tmp / "a", "single").files == tuple(
        sorted(str(path.relative_to(benchmax.cwd / "a")) for path in (benchmax.cwd / "a").rglob("*") if path.is_file())
    )
    shutil.rmtree(benchmax.tmp / "a")


def test_a_path_is_kept_out_of_the_names_and_quoted_for_the_shell(benchmax: CommandLine) -> None:
    (benchmax.cwd / "my own").mkdir()
    said = benchmax("init", "my own/first").good()
    assert "  cd 'my own/first'\n" in said
    assert "first.py:First" in said


def test_an_empty_folder_is_filled(benchmax: CommandLine) -> None:
    (benchmax.cwd / "a").mkdir(mode=0o700)
    benchmax("init", "a").good()
    assert (benchmax.cwd / "a" / "a.py").is_file()


def test_others_may_read_it_as_they_may_read_whatever_else_is_made(benchmax: CommandLine) -> None:
    (benchmax.cwd / "folder").mkdir()
    (benchmax.cwd / "file").touch()
    benchmax("init", "a", makes="a").good()
    modes = {path.stat().st_mode for path in (benchmax.cwd / "a").rglob("*")} | {(benchmax.cwd / "a").stat().st_mode}
    assert modes == {(benchmax.cwd / name).stat().st_mode for name in ("folder", "file")}


BAD_NAMES = ["..", "/", "3d", "a--b", "-", "a.b", "a b", "größe", "_a", "a-", "x" * 65, "a\nb", "a\x1b[31m"]
TAKEN = ["random", "benchmax", "openai", "Pytest", "class", "async", "tests", "conftest", "test_it"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_is_no_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a project") as caught:
        create_project(tmp_path / name)
    assert "begin with a letter" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TAKEN)
def test_a_name_that_means_something_else_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a project") as caught:
        create_project(tmp_path / name)
    assert "Choose another" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_never_takes_the_name_of_something_else(kind: str, tmp_path: Path) -> None:
    for name in ("dataset", "example", "path", "exception", "type-error", "base-env", "true", "None"):
        project = create_project(tmp_path / name, kind)
        tree = ast.parse((project.folder / f"{project.names.module}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert project.names.environment in defined - imported - set(dir(builtins))


def refused(benchmax: CommandLine, *arguments: str) -> str:
    before = sorted(path.name for path in benchmax.cwd.rglob("*"))
    said = benchmax("init", *arguments).error(2)
    assert sorted(path.name for path in benchmax.cwd.rglob("*")) == before
    return said


def test_what_is_there_is_not_touched(benchmax: CommandLine) -> None:
    (benchmax.cwd / "full").mkdir()
    (benchmax.cwd / "full" / "notes").write_text("mine")
    (benchmax.cwd / "file").write_text("mine")
    (benchmax.cwd / "empty").mkdir()
    (benchmax.cwd / "link").symlink_to("empty")
    assert "cannot make full: it holds something already. Choose another name." in refused(benchmax, "full")
    assert "cannot make file: something else is there." in refused(benchmax, "file")
    assert "cannot make link: something else is there." in refused(benchmax, "link")
    assert "cannot make file/a: file is not a folder." in refused(benchmax, "file/a")
    assert "cannot make no/a: no does not exist. Make it first" in refused(benchmax, "no/a")
    assert (benchmax.cwd / "full" / "notes").read_text() == (benchmax.cwd / "file").read_text() == "mine"


def test_a_place_that_cannot_be_written_is_named(benchmax: CommandLine) -> None:
    place = Path("/sys")
    if os.geteuid() != 0:
        place = benchmax.cwd / "shut"
        place.mkdir(mode=0o555)
    assert f"cannot make {place}/a: " in refused(benchmax, f"{place}/a")


def test_a_kind_that_there_is_not_is_named_with_those_that_there_are(benchmax: CommandLine) -> None:
    assert "--kind triple: there is no such kind. There are single, tools, custom." in refused(
        benchmax, "a", "--kind", "triple"
    )
    told = benchmax("init", "--help").good()
    assert all(f"{kind} (" in told for kind in KINDS)


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OSError),
        (OSError(errno.EACCES, "Permission denied"), UsageError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_an_error_halfway_leaves_nothing(
    failure: BaseException, raised: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text
    written: list[Path] = []

    def fails(path: Path, text: str, encoding: str) -> int:
        if len(written) == 3:
            raise failure
        written.append(path)
        return write(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", fails)
    with pytest.raises(raised):
        create_project(tmp_path / "a")
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


def test_what_an_installer_leaves_among_the_templates_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "templates"
    shutil.copytree(TEMPLATES, copy)
    compileall.compile_dir(copy, quiet=2)
    monkeypatch.setattr(projects, "TEMPLATES", copy)
    assert list(copy.rglob("*.pyc"))
    create_project(tmp_path / "a")
    assert not list((tmp_path / "a").rglob("*.pyc"))


@pytest.mark.integration
@pytest.mark.slow
def test_the_templates_are_in_the_wheel(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    there = {
        str(path.relative_to(ROOT))
        for path in TEMPLATES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert there <= packed
    assert not [name for name in packed if name.startswith("runner/authoring/templates") and name.endswith(".pyc")]
