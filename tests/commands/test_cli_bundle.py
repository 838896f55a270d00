"""`benchmax bundle`: what can be a target, what cannot, and what becomes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import require
from tests.integration.command_line import CommandLine

pytestmark = pytest.mark.integration

SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    return CommandLine(shared_cache, tmp_path)


FILES = ["env-cls.pkl", "env-facts.json", "env-metadata.json"]

TARGETS = {
    "tiny.py": (2, "names no class", "file.py:Class or pkg.mod:Class"),
    ":Tiny": (2, "names no class", "file.py:Class or pkg.mod:Class"),
    "tiny.py:": (2, "names no class", "file.py:Class or pkg.mod:Class"),
    "two words:Tiny": (2, "names no module", "file.py:Class or pkg.mod:Class"),
    "missing.py:Tiny": (2, "no such file: missing.py", "file.py:Class or pkg.mod:Class"),
    "missing.module:Tiny": (2, "no module named 'missing.module'", "Run the command from the folder"),
    "json.nothing:Tiny": (2, "no module named 'json.nothing'", "Run the command from the folder"),
    "tiny.py:Tyni": (2, "tiny.py has no 'Tyni'", "Its environments: Half, Nasty, Tiny."),
    "tiny.py:value": (2, "no class but a value of type int", "Its environments: Half, Nasty, Tiny."),
    "tiny.py:NotAnEnvironment": (2, "does not derive from benchmax.envs.Environment", "Its environments:"),
    "tiny.py:Half": (1, "tiny.Half has unimplemented abstract methods: run_rollout", ""),
}

MODULES = {
    "raise RuntimeError('gone wrong')": ("raised RuntimeError: gone wrong (target.py, line 1)", ""),
    "import no_such_module_of_anyone": ("ModuleNotFoundError", "declare it: --pip no_such_module_of_anyone"),
    "class (:": ("raised SyntaxError: invalid syntax (target.py, line 1)", ""),
    "raise SystemExit('enough')": ("raised SystemExit: enough", ""),
    "raise SystemExit": ("raised SystemExit (target.py, line 1)", ""),
    "raise KeyboardInterrupt": ("raised KeyboardInterrupt (target.py, line 1)", ""),
    "import os\nprint('last words', flush=True)\nos._exit(0)": (
        "importing target.py ended the process: exit code 0. Last output: last words.",
        "must be importable without that",
    ),
    "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)": ("ended the process: SIGKILL", "must be importable"),
}

OPTIONS = {
    "--arg size": (2, "--arg 'size' is not of the form NAME=JSON", "--arg size=120"),
    "--arg mode=good": (2, "--arg mode: 'good' is not JSON", "--arg 'mode=\"text\"'"),
    "--arg size=1 --arg size=2": (2, "--arg size is given twice", "Leave one of them out"),
    "--arg colour=1": (
        2,
        "Tiny(mode='good', size=2, marker=None): got an unexpected keyword argument 'colour'",
        "--arg NAME=JSON",
    ),
    "--pip six==": (2, "--pip", "'six=='"),
    "--pip six --pip Six": (2, "'six' is declared more than once", "Merge the entries"),
    "--pip six==99": (1, "no version of 'six'", "Loosen that requirement"),
    "--local-module missing": (2, "--local-module: no module named 'missing'", "Run the command from the folder"),
    "--python 3.14": (2, "--python 3.14: benchmax", "Name one of those"),
    "--python 2.7": (2, "--python 2.7: benchmax", "Name one of those"),
    "--python /nowhere/python": (2, "--python /nowhere/python: No such file", "a version such as 3.12, or a path"),
    "--python /bin/true": (2, "/bin/true is not a Python interpreter", "a version such as 3.12, or a path"),
    "--here --python 3.12": (2, "--here and --python contradict each other", "Leave one of them out"),
    "--out tiny.py": (2, "cannot write the artifact to tiny.py", "Choose another --out"),
    "--out tiny.py/below": (2, "tiny.py is not a folder", "Choose another --out"),
}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_that_is_not_there_says_what_is(benchmax: CommandLine, target: str) -> None:
    benchmax.source("tiny.py")
    code, what, advice = TARGETS[target]
    said = benchmax("bundle", target, "--out", "new").error(code)
    assert what in said
    assert advice in said


@pytest.mark.parametrize("code", MODULES)
def test_a_module_that_cannot_be_imported_is_named_with_the_place(benchmax: CommandLine, code: str) -> None:
    (benchmax.cwd / "target.py").write_text(code)
    what, advice = MODULES[code]
    said = benchmax("bundle", "target.py:Env", "--out", "new").error(1)
    assert what in said
    assert advice in said


@pytest.mark.parametrize("options", OPTIONS)
def test_an_option_that_cannot_be_meant_is_refused(benchmax: CommandLine, options: str) -> None:
    benchmax.source("tiny.py")
    code, what, advice = OPTIONS[options]
    out = [] if "--out" in options else ["--out", "new"]
    said = benchmax("bundle", "tiny.py:Tiny", *options.split(), *out).error(code)
    assert what in said
    assert advice in said


def test_a_file_that_hides_a_module_of_the_standard_library_is_to_be_renamed(benchmax: CommandLine) -> None:
    benchmax.source("tiny.py").rename(benchmax.cwd / "random.py")
    said = benchmax("bundle", "random.py:Tiny", "--out", "new").error(2)
    assert "has the name of the module 'random'" in said
    assert "Rename the file" in said


def test_noise_at_import_does_not_disturb(benchmax: CommandLine) -> None:
    noise = "import os\nprint('noise\\x1b[31m' * 100_000)\nos.write(1, b'\\xff\\x00')\nos.write(2, b'\\xff')\n"
    source = benchmax.source("tiny.py")
    source.write_text(source.read_text() + noise)
    finished = benchmax("bundle", "tiny.py:Tiny", "--out", "new", makes="new")
    assert "noise" not in finished.good() + finished.err


def test_a_file_is_bundled_with_its_arguments_and_runs(benchmax: CommandLine) -> None:
    benchmax.source("tiny.py")
    bundled = benchmax("bundle", "tiny.py:Tiny", "--arg", "size=3", "--out", "deep/er", "--json", makes="deep")
    facts = json.loads(bundled.good())
    assert facts["format"] == 1
    assert facts["path"] == "deep/er"
    assert facts["python_version"] == SERIES
    assert facts["pip_dependencies"] == []
    assert facts["digest"] in bundled.err
    ran = json.loads(benchmax("run", "deep/er", "--group-size", "1", "--json").good())
    assert ran["bundle"]["digest"] == facts["digest"]
    assert len(ran["groups"]) == 3


def test_bundling_again_replaces_the_artifact(benchmax: CommandLine) -> None:
    benchmax.source("tiny.py")
    for size in ("1", "2"):
        benchmax("bundle", "tiny.py:Tiny", "--arg", f"size={size}", "--out", "new", makes="new").good()
        assert sorted(path.name for path in (benchmax.cwd / "new").iterdir()) == FILES
    assert len(json.loads(benchmax("run", "new", "--group-size", "1", "--json").good())["groups"]) == 2


def test_a_module_of_the_working_directory_is_bundled_with_a_further_one(benchmax: CommandLine) -> None:
    package = benchmax.cwd / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text("from tiny import Tiny\nclass Inner(Tiny):\n    pass\n")
    benchmax.source("tiny.py")
    options = ["--local-module", "tiny", "--out", "new"]
    benchmax("bundle", "package.inner:Inner", *options, makes="new").good()
    # where the bundle runs there is neither
    for path in (*package.iterdir(), benchmax.cwd / "tiny.py"):
        path.unlink()
    assert json.loads(benchmax("run", "new", "--json").good())["bundle"]["environment"] == "Inner"


def test_here_bundles_without_a_cache_or_an_index(benchmax: CommandLine) -> None:
    benchmax.source("tiny.py")
    nowhere = {"BENCHMAX_CACHE_DIR": "/dev/null/cache", "BENCHMAX_INDEX_URL": "http://127.0.0.1:1/simple"}
    benchmax("bundle", "tiny.py:Tiny", "--here", "--out", "new", makes="new", env=nowhere).good()
    benchmax("run", "new").good()


def test_here_says_how_to_get_a_missing_module(benchmax: CommandLine) -> None:
    (benchmax.cwd / "target.py").write_text("import no_such_module_of_anyone")
    said = benchmax("bundle", "target.py:Env", "--here", "--out", "new").error(1)
    assert "pip install no_such_module_of_anyone" in said


@pytest.mark.slow
def test_another_series_is_bundled_and_run_by_its_own_interpreter(benchmax: CommandLine) -> None:
    other = "3.12" if SERIES != "3.12" else "3.11"
    benchmax.source("tiny.py")
    bundled = benchmax("bundle", "tiny.py:Tiny", "--python", other, "--out", "new", makes="new")
    require("no CPython" not in bundled.err, f"Python {other}")
    assert f"Python {other}" in bundled.good()
    ran = json.loads(benchmax("run", "new", "--json").good())
    assert ran["bundle"]["python_version"] == other
    assert ran["venv"]["python"] != str(Path(sys.executable).resolve())
