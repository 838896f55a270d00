"""Runs scripts in clean interpreters: each in a process of its own, with its own working directory and import path.

The processes are forked from one server that has imported benchmax and cloudpickle and nothing of any project, which
is what a fresh interpreter would have after its imports, without paying for them a hundred times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_SERVER = """
import json, os, sys, traceback
import cloudpickle, benchmax.bundle, benchmax.envs

def run(request):
    os.chdir(request["cwd"])
    sys.path[:0] = request["path"]
    names = {"__name__": "lab", "result": None}
    exec(compile(request["script"], "<lab>", "exec"), names)
    return names["result"]

for line in sys.stdin:
    request = json.loads(line)
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(read_end)
        try:
            answer = {"result": run(request)}
        except BaseException as error:
            answer = {"error": [type(error).__name__, str(error), traceback.format_exc()]}
        with open(write_end, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(write_end)
    with open(read_end) as pipe:
        text = pipe.read()
    os.wait()
    print(text, flush=True)
"""


class ScriptError(Exception):
    """What a script raised: the type's name, its text, and the traceback for the test report."""

    def __init__(self, type_name: str, text: str, remote_traceback: str) -> None:
        super().__init__(f"{type_name}: {text}\n{remote_traceback}")
        self.type_name = type_name
        self.text = text


class Lab:
    """A server of clean interpreters; use as a context manager."""

    def __init__(self, python: str = sys.executable) -> None:
        self._server = subprocess.Popen(
            [python, "-P", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={key: value for key, value in os.environ.items() if not key.startswith("PYTHON")},
        )

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_details: object) -> None:
        self._server.communicate()

    def run(self, script: str, *, cwd: Path, path: Sequence[Path] = ()) -> object:
        """Run a script and return what it left in `result` (JSON values only).

        Raises:
            ScriptError: the script raised.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {"script": textwrap.dedent(script), "cwd": str(cwd), "path": [str(entry) for entry in path]}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        if "error" in answer:
            raise ScriptError(*answer["error"])
        result: object = answer["result"]
        return result


ENV = """
from benchmax.envs import Dataset, Environment, RolloutAttempt

class Env(Environment[dict, RolloutAttempt]):
    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([])
    async def run_rollout(self, request):
        raise NotImplementedError
"""
"""The least that can be bundled; tests put a module's own lines before it and methods after it."""


def method(body: str) -> str:
    """Return a method `answer` of `Env` with these lines as its body."""
    return (
        textwrap.indent("def answer(self):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    "), "    ") + "\n"
    )


def env_module(head: str = "", *, answer: str = "return 1", tail: str = "") -> str:
    """Return a module with `Env` in it: lines before the class, the body of its method `answer`, lines after it."""
    return textwrap.dedent(head) + ENV + method(answer) + textwrap.dedent(tail)


@dataclass
class Project:
    """A folder of source and the bundles made from it.

    Args:
        lab: Where scripts run.
        root: The folder.
        elsewhere: An empty folder, the only place a loading process knows.
        path: Import path when dumping; empty for the folder itself.
    """

    lab: Lab
    root: Path
    elsewhere: Path
    path: list[Path] = field(default_factory=list)

    def write(self, files: dict[str, str], *, under: Path | None = None) -> None:
        """Write source files, creating folders."""
        for name, text in files.items():
            file = (under or self.root) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(text))

    def dump(self, arguments: str = "", *, module: str = "envmod", before: str = "", after: str = "") -> object:
        """Dump `Env` of a module; returns the script's `result`, by default the names of logged captures."""
        head = textwrap.dedent(f"""
            import importlib, logging, pickle, sys
            from benchmax.bundle import dump_bundle
            lines = []
            class Keep(logging.Handler):
                def emit(self, record):
                    lines.append([record.levelname, record.getMessage()])
            logging.getLogger("benchmax.bundle").addHandler(Keep())
            logging.getLogger("benchmax.bundle").setLevel("INFO")
            env_module = importlib.import_module({module!r})
        """)
        tail = textwrap.dedent(f"""
            bundle = dump_bundle(env_module.Env, {arguments})
            with open({str(self.bundle_file)!r}, "wb") as file:
                pickle.dump(bundle, file)
            result = lines
        """)
        return self.lab.run(
            head + textwrap.dedent(before) + tail + textwrap.dedent(after),
            cwd=self.root,
            path=self.path or [self.root],
        )

    def refusal(self, arguments: str = "", *, module: str = "envmod", before: str = "") -> str:
        """Return the text of the `BundlingError` that dumping raises."""
        try:
            self.dump(arguments, module=module, before=before)
        except ScriptError as error:
            assert error.type_name == "BundlingError", error
            return error.text
        raise AssertionError("the bundle was made")

    def load(self, expression: str = "env.answer()") -> object:
        """Load the bundle where nothing of the project can be seen; returns the expression's value over `env`."""
        script = f"""
            import pickle, sys
            from benchmax.bundle import load_bundle
            with open({str(self.bundle_file)!r}, "rb") as file:
                bundle = pickle.load(file)
            assert not any(path.startswith({str(self.root)!r}) for path in sys.path)
            env = load_bundle(bundle)
            result = {expression}
        """
        return self.lab.run(script, cwd=self.elsewhere)

    @property
    def bundle_file(self) -> Path:
        """Where the last bundle lies."""
        return self.elsewhere / "bundle.pkl"


def new_project(lab: Lab, folder: Path, *, marked: bool = True) -> Project:
    """Make an empty project; `marked` says whether it has a `pyproject.toml`."""
    root, elsewhere = folder / "project", folder / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    if marked:
        (root / "pyproject.toml").write_text("")
    return Project(lab, root, elsewhere)
