"""Everything that is wrong is found at once, nothing else is, and nothing that is looked at gets in the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bundle_lab import Lab, Project, new_project
from tests.contract.findings_lab import EXAMINE, SECRET, examined


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


MANY = """
import os, threading
from functools import lru_cache
from pathlib import Path
from benchmax.envs import Dataset, Environment

LOCK = threading.Lock()
ROWS = Path(__file__).parent / "rows.txt"

@lru_cache
def load():
    return os.environ

class Env(Environment):
    late = threading.Condition()

    async def create_dataset(self, split, base_dir, *, max_examples=None):
        with LOCK:
            return Dataset([load(), ROWS])

    async def run_rollout(self, request):
        self.request = request
        from beside import value
        return value
"""


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Project:
    return new_project(lab, tmp_path)


def test_everything_is_said_at_once_errors_first(project: Project) -> None:
    project.write({"envmod.py": MANY, "beside.py": "value = 1"})
    found = examined(project, "envmod")
    assert [(one["code"], one["line"]) for one in found] == [
        ("unpicklable", 7),
        ("author-path", 8),
        ("by-name-only", 10),
        ("unpicklable", 15),
        ("delayed-import", 23),
        ("shared-state", 22),
    ]
    assert [one["severity"] for one in found] == ["error"] * 5 + ["warning"]


def test_looking_leaves_the_process_as_it_was(project: Project) -> None:
    """Every other test here holds it, too, for what it looks at; this one, that a change would be noticed."""
    changing = (
        "class Own:\n    def __reduce__(self):\n        os.environ['CHANGED'] = 'yes'\n        return (int, ())\n"
    )
    project.write({"envmod.py": "import os\n" + changing + "HELD = Own()\n" + ENV_THAT_HOLDS})
    with pytest.raises(AssertionError, match="CHANGED"):
        examined(project, "envmod")


QUIET = {
    "a package of one's own under its dotted name": {
        "envmod.py": """
            import pkg.part
            from benchmax.envs import Dataset, Environment
            class Env(Environment):
                async def create_dataset(self, split, base_dir, *, max_examples=None):
                    return Dataset([pkg.part.value()])
                async def run_rollout(self, request):
                    return pkg.part.value()
        """,
        "pkg/__init__.py": "",
        "pkg/part.py": "def value(): return 1",
    },
    "what looks like a secret and is none": {
        "envmod.py": """
            from benchmax.envs import Dataset, Environment, InjectedAuth, StaticBearerAuth
            MONKEY = "a long name of an animal"
            LOCAL = StaticBearerAuth("no-key-needed")
            JUDGE = InjectedAuth("judge")
            URL = "http://user@localhost:8000/v1"
            TEMPLATE = "postgresql://{user}:{password}@{host}/rows"
            class Env(Environment):
                async def create_dataset(self, split, base_dir, *, max_examples=None):
                    return Dataset([MONKEY, LOCAL, JUDGE, URL, TEMPLATE])
                async def run_rollout(self, request):
                    raise NotImplementedError
        """,
    },
    "what is made once, when it is first needed": {
        "envmod.py": """
            from benchmax.envs import Dataset, Environment
            table = None
            class Env(Environment):
                client = None
                async def create_dataset(self, split, base_dir, *, max_examples=None):
                    self.folder = base_dir
                    return Dataset([])
                async def run_rollout(self, request):
                    global table
                    if table is None:
                        table = {}
                    if not hasattr(self, "lock"):
                        self.lock = object()
                    turns = {}
                    turns[request.rollout_id] = 1
                    return self.get()
                def get(self):
                    if self.client is None:
                        self.client = object()
                    return self.client
        """,
    },
    "paths of every machine": {
        "envmod.py": """
            from pathlib import Path
            from benchmax.envs import Dataset, Environment
            SHELL = Path("/bin/sh")
            NULL = "/dev/null"
            class Env(Environment):
                async def create_dataset(self, split, base_dir, *, max_examples=None):
                    return Dataset([SHELL, NULL, "/nowhere/at/all", "/etc/hosts"])
                async def run_rollout(self, request):
                    raise NotImplementedError
        """,
    },
    "annotations as text that nobody resolves": {
        "envmod.py": """
            from __future__ import annotations
            from typing import Literal
            from benchmax.envs import Dataset, Environment
            class Env(Environment):
                kind: Literal["a"]
                async def create_dataset(self, split: Literal["train"], base_dir, *, max_examples=None):
                    return Dataset([])
                async def run_rollout(self, request):
                    raise NotImplementedError
        """,
    },
    "an optional module of the standard library and what benchmax needs": {
        "envmod.py": """
            import httpx
            from benchmax.envs import Dataset, Environment
            class Env(Environment):
                async def create_dataset(self, split, base_dir, *, max_examples=None):
                    import json, openai
                    return Dataset([json, httpx.URL])
                async def run_rollout(self, request):
                    raise NotImplementedError
        """,
    },
}


@pytest.mark.parametrize("what", QUIET)
def test_nothing_is_found_in(project: Project, what: str) -> None:
    project.write(QUIET[what])
    assert examined(project, "envmod") == []


@pytest.mark.parametrize(
    "value",
    [
        "dict(rows=[dict(id=i, key=os.environ['FAKE_API_KEY']) for i in range(5000)])",
        "('a' * 100_000 + os.environ['FAKE_API_KEY']).encode()",
        "type('Holder', (), {'__slots__': ('one',)})",
    ],
)
def test_a_secret_is_found_however_it_is_held(project: Project, value: str) -> None:
    lines = f"import os\nHELD = {value}\n"
    if "Holder" in value:
        lines += "HELD = HELD()\nHELD.one = {'deep': [os.environ['FAKE_API_KEY']]}\n"
    project.write({"envmod.py": lines + ENV_THAT_HOLDS})
    [found] = [one for one in examined(project, "envmod") if one["code"] != "oversized"]
    assert found["code"] == "secret-captured"
    assert found["what"].startswith("Env.run_rollout → globals['HELD']")
    assert "FAKE_API_KEY" in found["message"]


ENV_THAT_HOLDS = """
from benchmax.envs import Dataset, Environment
class Env(Environment):
    async def create_dataset(self, split, base_dir, *, max_examples=None):
        return Dataset([])
    async def run_rollout(self, request):
        return HELD
"""

HARD = {
    "an object that raises whatever it is asked": (
        "class Nasty:\n    def __getattribute__(self, name): raise LookupError('never')\nHELD = Nasty()\n"
    ),
    "an object that reduces to nonsense": "class Nasty:\n    def __reduce_ex__(self, _): return 7\nHELD = Nasty()\n",
    "an object that raises a text with terminal commands": (
        "class Nasty:\n    def __reduce_ex__(self, _): raise ValueError('\\x1b[31m\\ud800' * 99999)\nHELD = Nasty()\n"
    ),
    "something nested without end": "HELD = []\nfor _ in range(100_000): HELD = [HELD]\n",
}


@pytest.mark.parametrize("what", HARD)
def test_what_is_hard_to_look_at_is_an_error_of_its_own(project: Project, what: str) -> None:
    project.write({"envmod.py": HARD[what] + ENV_THAT_HOLDS})
    found = examined(project, "envmod")
    assert {one["code"] for one in found} <= {"unpicklable", "refused"}
    assert found
    assert all(len(one["message"]) <= 2000 for one in found)


def test_objects_that_hold_each_other_come_to_an_end(project: Project) -> None:
    held = "class Ring: pass\nHELD = Ring()\nHELD.next = Ring()\nHELD.next.next = HELD\nHELD.all = [HELD, HELD.next]\n"
    project.write({"envmod.py": held + ENV_THAT_HOLDS})
    assert examined(project, "envmod") == []


def test_a_report_says_what_travels_and_what_is_needed(project: Project) -> None:
    project.write(
        {
            "envmod.py": "import httpx\nfrom beside import table\nHELD = [table, httpx.URL]\n" + ENV_THAT_HOLDS,
            "beside.py": "NAMES = ['name'] * 2000\ndef table(): return NAMES\n",
        }
    )
    more = """
    facts = report.facts()
    result = [facts, report.as_json(), len(report.bundle.pickled)]
"""
    script = EXAMINE.format(secret=SECRET, module="envmod", arguments="{'size': 3}") + more
    result: Any = project.lab.run(script, cwd=project.root, path=[project.root])
    facts, told, size = result
    names = [one["name"] for one in facts["by_value"]]
    assert names == ["beside", "envmod", "constructor_args['size']"]
    # shares are near the size of the pickle, which also holds the words that put them together
    assert size / 2 < sum(one["bytes"] for one in facts["by_value"]) <= size * 2
    sources = {one["module"]: one["source"] for one in facts["by_reference"]}
    assert sources["httpx"] == "httpx"
    assert sources["benchmax"] == "benchmax"
    assert {"envmod", "beside"}.isdisjoint(sources)
    assert facts["pickle_bytes"] == size
    assert str(project.root) not in str(facts)
    assert told["findings"] == []


@pytest.mark.parametrize("where", ["comment", "docstring of another function"])
def test_a_secret_in_what_travels_as_text_is_found(project: Project, where: str) -> None:
    if where == "comment":
        text = ENV_THAT_HOLDS.replace("return HELD", f"# {SECRET}\n        return 1")
    else:
        text = ENV_THAT_HOLDS.replace("return HELD", "return noted()") + f"def noted():\n    '''{SECRET}'''\n"
    project.write({"envmod.py": text})
    [found] = examined(project, "envmod")
    assert (found["severity"], found["code"]) == ("error", "secret-captured")
    assert SECRET not in str(found)
    if where == "comment":
        assert (found["what"], found["line"]) == ("Env → source", 7)


BESIDE = "from beside import HELD\n" + ENV_THAT_HOLDS


def test_source_of_another_folder_is_named_with_both_remedies(project: Project) -> None:
    outside = project.root.parent / "outside"
    project.write({"envmod.py": BESIDE})
    project.write({"beside.py": "def HELD(): return 1"}, under=outside)
    project.path = [project.root, outside]
    found = examined(project, "envmod")
    assert [(one["severity"], one["code"], one["line"]) for one in found] == [("error", "external-source", 1)]
    assert found[0]["what"] == "Env.run_rollout → globals['HELD']"
    assert "--local-module beside" in found[0]["fix"]
    assert "--pip" in found[0]["fix"]


def test_a_module_of_the_project_that_is_left_behind_is_named(project: Project) -> None:
    project.write({"envmod.py": BESIDE, "beside.py": "def HELD(): return 1"})
    script = EXAMINE.format(secret=SECRET, module="envmod", arguments="{}")
    script = script.replace("local_modules=[module]", "local_modules=[module], auto_local_modules=False")
    result: Any = project.lab.run(script, cwd=project.root, path=[project.root])
    [found, _] = result
    assert [(one["severity"], one["code"], one["line"]) for one in found] == [("error", "uncaptured-module", 1)]
    assert "--local-module beside" in found[0]["fix"]


NO_CLASSES = {
    "object": "does not implement benchmax.envs.Environment",
    "'a text'": "does not implement benchmax.envs.Environment",
    "Environment": "cannot be bundled",
    "type('Half', (Environment,), {})": "unimplemented abstract methods: create_dataset, run_rollout",
}


@pytest.mark.parametrize("what", NO_CLASSES)
def test_what_is_no_environment_is_refused_as_dumping_refuses_it(lab: Lab, tmp_path: Path, what: str) -> None:
    script = f"""
        from benchmax.bundle import examine
        from benchmax.envs import Environment
        report = examine({what})
        result = [[one.code, one.message] for one in report.errors] + [report.bundle]
    """
    result: Any = lab.run(script, cwd=tmp_path)
    [(code, message), bundle] = result
    assert (code, bundle) == ("refused", None)
    assert NO_CLASSES[what] in message
