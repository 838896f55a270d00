"""One deed reached in many ways: each of these pickles makes a folder when it is loaded, and inspecting it says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.inspecting import inspect_pickle, machine
from tests.hostile.assembling import call, group, name, pickle_of, text

FOLDER = text("made")
GETATTR = name("builtins", "getattr")
GETITEM = name("operator", "getitem")
PARTIAL = name("functools", "partial")
IMPORT = name("importlib", "import_module")
OS = call(IMPORT, text("os"))
MKDIR = name("os", "mkdir")
CODE = text("__import__('os').mkdir('made')")

NESTED = pickle_of(call(MKDIR, FOLDER))
FRAME_OF_TWO = b"\x95\x02\x00\x00\x00\x00\x00\x00\x00"

# fmt: off
ATTACKS: dict[str, bytes] = {
    "a name": pickle_of(call(MKDIR, FOLDER)),
    "a name in an old protocol": b"cos\nmkdir\n(S'made'\ntR.",
    "a name of Python 2": b"c__builtin__\neval\n(S\"__import__('os').mkdir('made')\"\ntR.",
    "a name with escapes": b"S'o\\x73'\nS'mkd\\151r'\n\x93(S'made'\ntR.",
    "a name from the memo": b"\x80\x04\x8c\x02os\x94\x8c\x05mkdir\x940h\x00h\x01\x93(\x8c\x04madetR.",
    "a name put under a far number":
        b"\x80\x04\x8c\x02osr\xff\xff\x00\x000j\xff\xff\x00\x00\x8c\x05mkdir\x93(\x8c\x04madetR.",
    "a name doubled": b"\x80\x04\x8c\x05mkdir\x8c\x02os20\x8c\x05mkdir\x93(\x8c\x04madetR.",
    "a name through another module": pickle_of(call(name("logging", "os.mkdir"), FOLDER)),
    "a name through cloudpickle": pickle_of(call(name("cloudpickle.cloudpickle", "builtins.exec"), CODE)),
    "an attribute": pickle_of(call(call(GETATTR, OS, text("mkdir")), FOLDER)),
    "an attribute of an attribute":
        pickle_of(call(call(GETATTR, call(GETATTR, call(IMPORT, text("logging")), text("os")), text("mkdir")), FOLDER)),
    "an attribute got": pickle_of(call(call(call(name("operator", "attrgetter"), text("mkdir")), OS), FOLDER)),
    "a method called": pickle_of(call(call(name("operator", "methodcaller"), text("mkdir"), FOLDER), OS)),
    "a partial function": pickle_of(call(call(PARTIAL, MKDIR, FOLDER))),
    "a partial lookup": pickle_of(call(call(call(PARTIAL, GETATTR, OS), text("mkdir")), FOLDER)),
    "a member of a module's dict":
        pickle_of(call(call(GETITEM, call(name("builtins", "vars"), OS), text("mkdir")), FOLDER)),
    "a member of all modules":
        pickle_of(call(call(GETATTR, call(GETITEM, name("sys", "modules"), text("os")), text("mkdir")), FOLDER)),
    "a module that cloudpickle imports": pickle_of(
        call(call(GETATTR, call(name("cloudpickle.cloudpickle", "subimport"), text("os")), text("mkdir")), FOLDER)
    ),
    "an import by name":
        pickle_of(call(call(GETATTR, call(name("builtins", "__import__"), text("os")), text("mkdir")), FOLDER)),
    "a method of an instance": b"\x80\x04(" + FOLDER + b"ios\nmkdir\n.",
    "an object": b"\x80\x04(" + MKDIR + FOLDER + b"o.",
    "a map": pickle_of(call(name("builtins", "list"), call(name("builtins", "map"), MKDIR, group(FOLDER)))),
    "a default of a dict":
        pickle_of(call(GETITEM, call(name("collections", "defaultdict"), call(PARTIAL, MKDIR, FOLDER)), text("key"))),
    "text as code": pickle_of(call(name("builtins", "exec"), CODE)),
    "text as an expression": pickle_of(call(name("builtins", "eval"), CODE)),
    "a timing": pickle_of(call(name("timeit", "timeit"), CODE, text(""), name("time", "time"), b"K\x01")),
    "another pickle":
        pickle_of(call(name("pickle", "loads"), b"B" + len(NESTED).to_bytes(4, "little") + NESTED)),
    "a program": pickle_of(call(name("subprocess", "check_call"), b"(" + text("mkdir") + FOLDER + b"l")),
    "a shell": pickle_of(call(name("posix", "system"), text("mkdir made"))),
    "what is made first, and dropped": pickle_of(call(MKDIR, FOLDER), b"N"),
    "what is made before a broken end": b"\x80\x04" + call(MKDIR, FOLDER) + b"\xff",
    "what is made in a frame that ends early": b"\x80\x04" + FRAME_OF_TWO + call(MKDIR, FOLDER) + b".",
}
# fmt: on

LOAD = """
import os, pickle, sys
attacks = eval(sys.stdin.read())
for title, data in attacks.items():
    os.makedirs(folder := f"{list(attacks).index(title)}")
    os.chdir(folder)
    try:
        pickle.loads(data)
    except Exception as error:
        print(title, type(error).__name__, error, file=sys.stderr)
    os.chdir("..")
    print(int(os.path.isdir(f"{folder}/made")))
"""


def test_each_of_them_is_one(tmp_path: Path) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD], input=repr(ATTACKS), capture_output=True, text=True, cwd=tmp_path, check=True
    )
    done = dict(zip(ATTACKS, loaded.stdout.split(), strict=True))
    assert {title for title, made in done.items() if made == "0"} == set(), loaded.stderr


@pytest.mark.parametrize("title", ATTACKS)
def test_it_is_a_danger(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    overview = inspect_pickle(ATTACKS[title])
    assert overview.dangers, overview
    assert "while it is loaded" in overview.dangers[0].message
    assert not [*tmp_path.iterdir()], "it was carried out"


@pytest.mark.parametrize("bound", ["MAX_NODES", "MAX_MEMO"])
@pytest.mark.parametrize("title", ATTACKS)
def test_it_does_not_pass_behind_more_than_is_kept(title: str, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # as if half a million values had come before it
    monkeypatch.setattr(machine, bound, -1)
    overview = inspect_pickle(ATTACKS[title])
    assert overview.dangers or overview.unfinished
