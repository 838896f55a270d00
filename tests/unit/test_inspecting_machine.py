"""What a pickle does when it is loaded, told from its instructions: what is judged, and what of it is known."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import functools
import pickle
import re
import struct
import uuid
from pathlib import Path

import cloudpickle  # type: ignore[import-untyped]
import pytest

from runner.inspecting import Overview, inspect_pickle
from tests.hostile.assembling import call, group, name, pickle_of, text

GETATTR = name("builtins", "getattr")
BUNDLES = Path(__file__).parents[1] / "fixtures" / "contract" / "bundles"


def codes(overview: Overview) -> dict[str, str]:
    return {one.code: one.severity for one in overview.findings}


def messages(overview: Overview) -> str:
    return "\n".join(one.message for one in overview.findings)


@pytest.mark.parametrize("bundle", ["plain", "tools", "static"])
def test_a_bundle_as_it_is_packed_has_no_findings(bundle: str) -> None:
    overview = inspect_pickle((BUNDLES / bundle / "env-cls.pkl").read_bytes())
    assert overview.findings == ()
    assert (overview.broken, overview.unfinished, overview.protocol) == ("", "", 5)
    assert {one.name for one in overview.calls if not one.expected} <= {
        "benchmax.auth.InjectedAuth",
        "benchmax.auth.StaticBearerAuth",
        "benchmax.rewards.diversity.NgramDiversityConfig",
        "benchmax.rewards.judge.Judge",
        "benchmax.rewards.rubric.Rubric",
        "builtins.type",
        "_functools.reduce",
    }


def test_what_would_be_imported_is_told_with_the_names_asked_for() -> None:
    overview = inspect_pickle((BUNDLES / "plain" / "env-cls.pkl").read_bytes())
    imports = {one.module: one.names for one in overview.imports}
    assert imports["benchmax.envs.environment"] == ("Environment",)
    assert imports["builtins"] == ("dict", "float", "str")
    assert overview.environment == "Plain"
    assert overview.arguments == {"scale": "0.5", "where": "'here'"}
    assert overview.modules == ("helper_mod",)


class Colour(str):
    """A class of this module, so by reference."""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_of_every_protocol_has_no_dangers_and_no_warnings(protocol: int) -> None:
    data = [
        {"a": [1, (2, 3)], "b": {4}}, collections.OrderedDict(x=1), collections.Counter("aab"),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC), decimal.Decimal("1.5"), uuid.UUID(int=1), 2 + 3j,
        re.compile("x"), Path("/data"), functools.partial(int, base=2), range(3), slice(1), collections.deque([1]),
        Colour("red"), dt.timedelta(1), bytearray(b"x"), frozenset({1}),
    ]  # fmt: skip
    overview = inspect_pickle(pickle.dumps((Colour, {"data": data}), protocol))
    assert not [one for one in overview.findings if one.severity != "note"], messages(overview)
    assert overview.broken == ""


def test_types_in_annotations_are_no_calls_to_tell() -> None:
    def annotated(a: int | None, b: list[dict[str, int]], c: type[None]) -> tuple[int, ...]:
        raise NotImplementedError(a, b, c)

    overview = inspect_pickle(cloudpickle.dumps((annotated, {})))
    assert overview.findings == ()
    (function,) = overview.functions
    assert function.signature.startswith("def annotated(a: ")


def test_what_a_bundles_code_refers_to_is_only_a_note() -> None:
    import subprocess

    def works() -> object:
        return subprocess.run, eval("1")

    works.__module__ = "__main__"
    overview = inspect_pickle(cloudpickle.dumps((works, {})))
    assert {one.severity for one in overview.findings} == {"note"}
    assert "imports subprocess, which starts or ends programs" in messages(overview)
    assert "names eval in its code" in messages(overview)


def test_the_whole_environment_is_told() -> None:
    import os

    overview = inspect_pickle(cloudpickle.dumps((Colour, {"variables": os.environ})))
    assert codes(overview)["environment"] == "warning"
    assert "calls os._Environ while it is loaded, which holds the environment variables" in messages(overview)


def test_a_function_of_its_own_that_runs_is_told() -> None:
    made = cloudpickle.dumps(lambda: 1)
    assert made.endswith(b".")
    overview = inspect_pickle(made[:-1] + b")R.")
    assert codes(overview)["runs-own-code"] == "warning"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (pickle_of(name("os", "environ") + text("A") + text("b") + b"s"), "changes-imported"),
        (pickle_of(name("sys", "path") + text("/tmp") + b"a"), "changes-imported"),
        (pickle_of(name("m", "C") + b"}" + b"b"), "changes-imported"),
        (pickle_of(call(name("cloudpickle.cloudpickle", "_class_setstate"), name("m", "C"), b"N")), "changes-imported"),
        (pickle_of(call(name("builtins", "setattr"), name("m", "C"), text("a"), b"N")), "calls"),
        (pickle_of(call(name("any.library", "apply"), name("os", "system"))), "hands-over"),
        (pickle_of(call(name("any.library", "apply"), group(name("os", "system")))), "hands-over"),
        (pickle_of(call(name("socket", "create_connection"), group(text("h"), b"K\x01"))), "calls"),
        (pickle_of(call(name("ctypes", "CDLL"), text("libc.so.6"))), "calls"),
        (pickle_of(call(name("shutil", "rmtree"), text("/"))), "calls"),
        (pickle_of(call(name("marshal", "loads"), b"C\x01N")), "calls"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value[-40:]),
)
def test_what_no_packing_asks_for_is_a_danger(data: bytes, code: str) -> None:
    assert codes(inspect_pickle(data))[code] == "danger"


@pytest.mark.parametrize(
    ("data", "code", "severity"),
    [
        (pickle_of(call(name("builtins", "map"), name("m", "f"), b"]")), "calls-indirectly", "warning"),
        (pickle_of(call(name("builtins", "type"), text("C"), b")", b"}")), "calls-indirectly", "warning"),
        (pickle_of(call(GETATTR, name("m", "C"), text("__subclasses__"))), "reaches-inside", "warning"),
        (pickle_of(call(GETATTR, name("m", "C"), b"K\x01")), "computed-name", "warning"),
        (pickle_of(call(name("importlib", "import_module"), b"K\x01")), "computed-name", "warning"),
        (pickle_of(call(call(name("m", "f")))), "calls-result", "warning"),
        (pickle_of(call(text("f"))), "calls-unknown", "warning"),
        (b"\x80\x04\x82\x07.", "extension", "warning"),
        (b"Pname\n.", "persistent-id", "warning"),
        (b"\x80\x05K\x01Q.", "persistent-id", "warning"),
        (b"\x80\x05\x97.", "buffer", "warning"),
        (b"\x80\x04N\x94NN.", "leftover", "note"),
        (b"\x80\x04N.more", "rest", "warning"),
        (b"\x80\x04\x95\x0b" + b"\0" * 7 + b"\x95\x02" + b"\0" * 7 + b"N.", "frames", "warning"),
        (b"\x80\x04N.", "payload", "warning"),
        (pickle_of(group(name("m", "C"), b"N")), "payload", "warning"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "memory", "warning"),
        (b"c" + b"m" * 9000 + b"\nn\n.", "unread-name", "warning"),
        (pickle_of(text("m" * 9000) + text("n") + b"\x93"), "unread-name", "warning"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_unusual_is_told(data: bytes, code: str, severity: str) -> None:
    overview = inspect_pickle(data)
    assert codes(overview)[code] == severity
    assert overview.dangers == ()


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "cut short"),
        (b"\x80\x06N.", "it is of protocol 6, and there are 0 to 5"),
        (b".", "an instruction takes more than there is"),
        (b"(.", "an instruction takes a value and finds a mark"),
        (b"t.", "an instruction goes back to a mark, and there is none"),
        (b"(\x94.", "an instruction takes a value and finds a mark"),
        (b"h\x05.", "refers back to number 5, which there is not"),
        (b"}(K\x01u.", "a key without a value"),
        (b"(o.", "there is nothing to call"),
        (b"K\x01K\x02\x93.", "imports by something that is no name"),
        (b"\x80\x04\x95\xff" + b"\0" * 7 + b"N.", "a frame announces 255 bytes, and 2 follow"),
    ],
    ids=lambda value: "" if isinstance(value, str) else repr(value[:8]),
)
def test_what_cannot_be_loaded_is_broken(data: bytes, what: str) -> None:
    overview = inspect_pickle(data)
    assert what in overview.broken
    assert f"of {len(data)}" in overview.broken
    with pytest.raises((pickle.UnpicklingError, ValueError, EOFError, IndexError, TypeError)):
        pickle.loads(data)


def test_what_is_seen_again_is_counted() -> None:
    overview = inspect_pickle(pickle_of(*[call(name("os", "system"), text("ls"))] * 3))
    (one,) = overview.dangers
    assert one.count == 3
    assert one.position < 40


def test_a_pickle_that_is_too_long_is_followed_as_far_as_it_may() -> None:
    overview = inspect_pickle(b"\x80\x04" + b"N0" * 100 + b"N.", max_opcodes=50)
    assert "more than 50 instructions" in overview.unfinished
    assert overview.opcodes == 50
    assert inspect_pickle(b"\x80\x04" + b"N0" * 100 + b"N.", max_opcodes=203).unfinished == ""


def test_a_pickle_held_as_data_is_looked_into() -> None:
    inner = pickle_of(call(name("os", "system"), text("ls")))
    for depth in range(3):
        inner = b"\x80\x04B" + struct.pack("<I", len(inner)) + inner + b"."
        overview = inspect_pickle(inner)
        assert "holds a pickle as data that calls os.system" in messages(overview), depth
        assert overview.dangers == ()
