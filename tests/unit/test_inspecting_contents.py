"""What a pickle brings along, told from its code objects: as it was written, though nothing of it is made."""

from __future__ import annotations

import functools
import json
import sys
import types

import cloudpickle  # type: ignore[import-untyped]
import pytest

from runner.inspecting import Overview, inspect_pickle
from runner.inspecting.bounds import MAX_MEMBERS, MAX_NODES
from tests.hostile.assembling import call, group, name, pickle_of, text

SOURCE = '''
import enum

FACTOR = 3

def free(a, /, b, c=1, *rest: int, d, e="x", **more) -> str:
    """Says what it does."""
    def inner():
        return later(FACTOR)
    return inner() + "a text"

async def stream(n: "int" = 2, *, on: bool = True):
    yield n

class Base:
    pass

class Env(Base):
    """An environment."""
    size = 12
    names = ("a", "b")

    def __init__(self, size=3): self.size = size
    @staticmethod
    def fixed(x): return x
    @classmethod
    def made(cls): return cls()
    @property
    def double(self): return self.size * 2
    async def run(self, *, url: str = "http://localhost"): return url

class Kind(enum.Enum):
    ONE = 1
'''


@pytest.fixture
def module() -> types.ModuleType:
    made = types.ModuleType("authored")
    made.__file__ = "/home/author/authored.py"
    exec(compile(SOURCE, made.__file__, "exec", dont_inherit=True), made.__dict__)
    return made


def inspected(module: types.ModuleType, *names: str, **arguments: object) -> Overview:
    sys.modules["authored"] = module
    cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps((*(getattr(module, one) for one in names), arguments))
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules["authored"]
    return inspect_pickle(data)


def test_a_function_is_told_with_its_signature_and_place(module: types.ModuleType) -> None:
    (free,) = inspected(module, "free").functions
    assert free.signature == "def free(a, /, b, c=1, *rest: int, d, e='x', **more) -> str"
    assert (free.name, free.module, free.doc) == ("free", "authored", "Says what it does.")
    assert (free.file, free.line) == ("/home/author/authored.py", 6)
    assert {"later", "FACTOR"} <= {*free.names}, "names of functions inside are told, too"
    assert "a text" in free.texts


def test_a_generator_is_told_as_what_it_is(module: types.ModuleType) -> None:
    (stream,) = inspected(module, "stream").functions
    assert stream.signature == "async def stream(n: int = 2, *, on: bool = True)"


def test_a_class_is_told_with_its_methods_however_they_are_wrapped(module: types.ModuleType) -> None:
    overview = inspected(module, "Env", size=4, names=["x"] * 20)
    env = next(one for one in overview.classes if one.name == "Env")
    assert (env.module, env.doc, len(env.bases)) == ("authored", "An environment.", 1)
    assert {one.signature for one in env.functions} >= {
        "def __init__(self, size=3)",
        "def fixed(x)",
        "def made(cls)",
        "def double(self)",
        "async def run(self, *, url: str = 'http://localhost')",
    }
    assert {"size = 12", "names = ('a', 'b')"} <= {*env.attributes}
    assert overview.functions == (), "methods are told with their class"
    assert overview.environment == "Env"
    assert overview.arguments == {
        "size": "4",
        "names": "['x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', … 12 more]",
    }


def test_an_enumeration_is_told(module: types.ModuleType) -> None:
    (kind,) = inspected(module, "Kind").classes
    assert (kind.name, kind.module, kind.bases) == ("Kind", "authored", ("enum.Enum",))


def test_all_of_it_is_json(module: types.ModuleType) -> None:
    overview = inspected(module, "Env", "free", "Kind", nothing=None, partial=functools.partial(int, base=2))
    told = json.loads(json.dumps(overview.as_json()))
    assert {one["name"] for one in told["classes"]} >= {"Env", "Kind"}


def test_code_that_is_none_is_told_as_far_as_it_goes() -> None:
    code_type = call(name("cloudpickle.cloudpickle", "_builtin_type"), text("CodeType"))
    odd = group(*[b"N"] * 18)
    for code in (b"N", b"]", code_type, code_type + odd + b"R", code_type + group(b"K\x07") + b"R"):
        data = pickle_of(call(name("cloudpickle.cloudpickle", "_make_function"), code, b"N", text("f"), b"N", b"N"))
        (function,) = inspect_pickle(data).functions
        assert function.name == "?"
        assert function.signature in ("def ?(…)", "def ?()")


def test_classes_that_are_none_are_told_as_far_as_they_go() -> None:
    for maker in ("_make_skeleton_class", "_make_skeleton_enum"):
        for arguments in ([], [b"N"] * 7, [text("\x1b[2J")] * 7, [b"]"] * 7):
            (one,) = inspect_pickle(pickle_of(call(name("cloudpickle.cloudpickle", maker), *arguments))).classes
            assert one.functions == ()
            assert one.name.isprintable()


def test_numbers_that_count_no_arguments_are_told_without_counting() -> None:
    code_type = call(name("cloudpickle.cloudpickle", "_builtin_type"), text("CodeType"))
    huge = b"J" + (2**31 - 1).to_bytes(4, "little")
    code = code_type + group(*[huge] * 6, b"N", b"N", b"N", group(text("a")), *[b"N"] * 8) + b"R"
    data = pickle_of(call(name("cloudpickle.cloudpickle", "_make_function"), code))
    (function,) = inspect_pickle(data).functions
    assert function.signature.startswith("async def ?(a")


def test_what_comes_after_much_data_is_judged_all_the_same() -> None:
    row = b"}(" + b"".join(text(f"k{i}") + b"K\x01" for i in range(100)) + b"u"
    data = b"(" + row * (MAX_NODES // 200 + 1_000) + b"l"
    harmless = inspect_pickle(pickle_of(data, call(name("m", "C"), b"N")))
    assert (harmless.dangers, harmless.unfinished) == ((), "")
    assert inspect_pickle(pickle_of(data, call(name("os", "system"), text("ls")))).dangers
    hidden = inspect_pickle(pickle_of(data, call(call(name("functools", "partial"), b"N"))))
    assert hidden.unfinished == "it calls what came after more than is kept of it"


def test_a_large_argument_is_told_by_its_size(module: types.ModuleType) -> None:
    overview = inspected(module, "Env", data=[*range(3 * MAX_MEMBERS)], text="x" * 100_000, blob=b"y" * 100_000)
    assert overview.arguments["data"].endswith(f"… {3 * MAX_MEMBERS - 8:,} more]")
    assert overview.arguments["text"].startswith("<text of 100,000 bytes 'xxx")
    assert overview.arguments["blob"] == "<bytes of 100,000 bytes>"
