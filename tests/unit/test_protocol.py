"""The wire: every message makes the round trip, and whatever else comes is a `FrameError` and nothing but that."""

from __future__ import annotations

import ast
import math
import random
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner import protocol
from runner.errors import FrameError
from runner.frames import frame_length
from runner.limits import DATASET_PART_IDS, MAX_FRAME_BYTES, MAX_ID_CHARS, MAX_REWARD_BYTES, MAX_TEXT_CHARS
from runner.protocol import (
    HEADER,
    CallDone,
    Cancel,
    Close,
    DatasetPart,
    HeaderRequest,
    Headers,
    Load,
    Log,
    MessageDecoder,
    Outcome,
    RolloutsEnded,
    RolloutSpec,
    RunGroup,
    auth_from_worker_decoder,
    auth_to_worker_decoder,
    encode,
    from_worker_decoder,
    to_worker_decoder,
)

DECODERS: dict[str, MessageDecoder[Any]] = {
    "to worker": to_worker_decoder(),
    "from worker": from_worker_decoder(),
    "auth to worker": auth_to_worker_decoder(),
    "auth from worker": auth_from_worker_decoder(),
}
MEMBERS: dict[str, tuple[Any, ...]] = {
    "to worker": get_args(protocol.ToWorker),
    "from worker": get_args(protocol.FromWorker),
    "auth to worker": get_args(protocol.AuthToWorker),
    "auth from worker": get_args(protocol.AuthFromWorker),
}
DIRECTIONS: dict[Any, list[str]] = {}
for direction, members in MEMBERS.items():
    for member in members:
        DIRECTIONS.setdefault(member, []).append(direction)
DIRECTION_OF = {member: directions[0] for member, directions in DIRECTIONS.items()}


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Values of one field's type, bounds included."""
    match kind:
        case msgspec.inspect.IntType(ge=low, le=high):
            return st.integers(-(2**63) if low is None else int(low), 2**63 - 1 if high is None else int(high))
        case msgspec.inspect.FloatType():
            return st.floats(0, 1e12, exclude_max=True, allow_nan=False)
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.StrType(min_length=low):
            return st.text(st.characters(exclude_categories=["Cs"]), min_size=low or 0, max_size=20)
        case msgspec.inspect.BytesType():
            return st.binary(max_size=50)
        case msgspec.inspect.LiteralType(values=choices):
            return st.sampled_from(choices)
        case msgspec.inspect.ListType(item_type=item, min_length=low):
            return st.lists(values(item), min_size=low or 0, max_size=4)
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=4)
        case msgspec.inspect.StructType(cls=cls):
            return messages(cls)
        case msgspec.inspect.UnionType(types=members):
            return st.one_of(*map(values, members))
        case msgspec.inspect.NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no values for {kind}")


def messages(kind: type[Any]) -> st.SearchStrategy[Any]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return st.builds(kind, **{field.name: values(field.type) for field in info.fields})


def any_message() -> st.SearchStrategy[Any]:
    return st.one_of(*(messages(kind) for kind in DIRECTION_OF))


def body_of(message: Any) -> bytes:
    return encode(message)[HEADER.size :]


def refused(body: bytes, direction: str = "from worker") -> str:
    with pytest.raises(FrameError) as caught:
        DECODERS[direction].decode(body)
    return str(caught.value)


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


# -- what is accepted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DIRECTION_OF, ids=lambda kind: kind.__name__)
def test_every_message_makes_the_round_trip(kind: Any) -> None:
    @settings(max_examples=40, deadline=None)
    @given(messages(kind))
    def check(message: Any) -> None:
        frame = encode(message)
        assert frame_length(frame[: HEADER.size]) == len(frame) - HEADER.size
        for direction in DIRECTIONS[kind]:
            assert DECODERS[direction].decode(frame[HEADER.size :]) == message

    check()


def test_the_header_is_four_bytes_big_endian() -> None:
    frame = encode(Close())
    assert frame[:4] == len(frame[4:]).to_bytes(4, "big")
    assert msgspec.msgpack.decode(frame[4:]) == {"op": "close"}


def test_tags_are_unique_over_all_channels_and_directions() -> None:
    tags = [kind.__struct_config__.tag for kind in DIRECTION_OF]
    assert len(set(tags)) == len(tags)


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", DIRECTION_OF, ids=lambda kind: kind.__name__)
def test_a_message_of_another_direction_is_refused(kind: Any) -> None:
    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(messages(kind))
    def check(message: Any) -> None:
        for direction in DECODERS.keys() - {*DIRECTIONS[kind]}:
            assert "Invalid value" in refused(body_of(message), direction)

    check()


@settings(max_examples=40, deadline=None)
@given(any_message())
def test_every_truncation_is_refused(message: Any) -> None:
    body = body_of(message)
    for end in range(len(body)):
        refused(body[:end], DIRECTION_OF[type(message)])


@settings(max_examples=15, deadline=None)
@given(any_message(), st.randoms(use_true_random=False))
def test_every_changed_byte_is_refused_or_gives_another_valid_message(message: Any, chance: random.Random) -> None:
    body = body_of(message)
    decoder = DECODERS[DIRECTION_OF[type(message)]]
    for place in range(len(body)):
        for value in {0, 0xFF, 0xC1, chance.randrange(256), body[place] ^ 1, body[place] ^ 0x80}:
            changed = body[:place] + bytes([value]) + body[place + 1 :]
            try:
                got = decoder.decode(changed)
            except FrameError:
                continue
            # what is let through is itself within every bound
            assert decoder.decode(body_of(got)) == got


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_frame_errors(body: bytes) -> None:
    for decoder in DECODERS.values():
        try:
            decoder.decode(body)
        except FrameError:
            continue


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"op": "nonsense"}, "Invalid value 'nonsense' - at `$.op`"),
        ({"op": 7}, "Expected `str`"),
        ({"op": None}, "Expected `str`"),
        ({}, "missing required field `op`"),
        ({"call": 1}, "missing required field `op`"),
        ([], "Expected `object`, got `array`"),
        ("call-done", "Expected `object`, got `str`"),
        ({"op": "call-done"}, "missing required field `call`"),
        ({"op": "call-done", "call": 1, "more": 2}, "unknown field `more`"),
        ({"op": "call-done", "call": -1}, "Expected `int` >= 0"),
        ({"op": "call-done", "call": 2**63}, "Expected `int`"),
        ({"op": "call-done", "call": 2**64 - 1}, "Expected `int`"),
        ({"op": "call-done", "call": 1.0}, "got `float`"),
        ({"op": "call-done", "call": "1"}, "got `str`"),
        ({"op": "call-done", "call": True}, "got `bool`"),
        ({"op": "call-done", "call": None}, "Expected `int`"),
        ({"op": "call-done", "call": msgspec.msgpack.Ext(1, b"x")}, "got `ext`"),
        ({"op": "call-done", "call": msgspec.msgpack.Ext(-1, b"\0\0\0\0")}, "got `ext`"),
        ({"op": "dataset-part", "call": 1, "ids": ["a", msgspec.msgpack.Ext(1, b"x")]}, "got `ext` - at `$.ids[1]`"),
        ({"op": "dataset-part", "call": 1, "ids": [""]}, "length >= 1"),
        ({"op": "dataset-part", "call": 1, "ids": ["x" * (MAX_ID_CHARS + 1)]}, "length <= 4096"),
        ({"op": "dataset-part", "call": 1, "ids": ["x"] * (DATASET_PART_IDS + 1)}, "length <= 10000"),
        ({"op": "rollouts-ended", "call": 1, "rollouts": [], "seconds": []}, "length >= 1"),
        ({"op": "rollouts-ended", "call": 1, "rollouts": ["a"], "seconds": [math.nan]}, "Expected `float`"),
        ({"op": "rollouts-ended", "call": 1, "rollouts": ["a"], "seconds": [math.inf]}, "Expected `float`"),
        ({"op": "rollouts-ended", "call": 1, "rollouts": ["a"], "seconds": [-1e-9]}, "Expected `float` >= 0"),
        ({"op": "rollouts-ended", "call": 1, "rollouts": ["a"], "seconds": [1e12]}, "Expected `float` <"),
        ({"op": "log", "call": 1, "rollouts": [], "stream": "log", "level": 1001, "logger": "", "text": ""}, "<= 1000"),
        ({"op": "log", "call": 1, "rollouts": [], "stream": "net", "level": 1, "logger": "", "text": ""}, "'net'"),
        (
            {
                "op": "outcome",
                "call": 1,
                "rollout_id": "r",
                "termination_reason": "x",
                "rewards": b"0" * (MAX_REWARD_BYTES + 1),
            },
            "length <= 1048576 - at `$.rewards`",
        ),
        ({"op": "call-failed", "call": 1, "failure": {"type": "T", "message": "m", "op": "close"}}, "unknown field"),
        ({"op": "call-failed", "call": 1, "failure": {"type": "T", "message": "x" * (MAX_TEXT_CHARS + 1)}}, "16384"),
        ({b"op": "call-done", "call": 1}, "Expected `str`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_out_of_its_type_or_bounds_is_refused_and_named(value: object, text: str) -> None:
    assert text in refused(packed(value))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xc1", id="never used"),
        pytest.param(packed({"op": "call-done", "call": 1}) + b"\0", id="bytes after the message"),
        pytest.param(packed({"op": "call-done", "call": 1}) * 2, id="two messages"),
        pytest.param(b"\x82\xa2op\xa9call-\xff\xffne\xa4call\x01", id="tag that is not UTF-8"),
        pytest.param(
            b"\x83\xa2op\xabcall-failed\xa4call\x01\xa7failure\x82\xa4type\xa1T\xa7message\xa3\xed\xa0\x80",
            id="surrogate",
        ),
        pytest.param(b"\xdf\xff\xff\xff\xff\xa2op\xa9call-done", id="map of four thousand million members"),
        pytest.param(b"\x83\xa2op\xacdataset-part\xa4call\x01\xa3ids\xdd\xff\xff\xff\xff\xa1a", id="array likewise"),
        pytest.param(b"\x82\xa2op\xa9call-done\xdb\xff\xff\xff\xffcall", id="name of four gigabytes"),
        pytest.param(b"\x82\xa2op\xa7outcome\xa7rewards\xc6\xff\xff\xff\xff", id="bytes of four gigabytes"),
    ],
)
def test_malformed_bytes_are_refused_without_being_believed(body: bytes) -> None:
    tracemalloc.start()
    try:
        refused(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("nest", [b"\x91", b"\x81\xa1a"], ids=["arrays", "maps"])
@pytest.mark.parametrize(
    "before",
    [
        pytest.param(b"", id="instead of a message"),
        pytest.param(b"\x82\xa3zzz", id="before the tag"),
        pytest.param(b"\x82\xa2op\xa9call-done\xa4call", id="in a field"),
        pytest.param(b"\x83\xa2op\xa9call-done\xa4call\x01\xa3zzz", id="in an unknown field"),
        pytest.param(b"\x83\xa2op\xacdataset-part\xa4call\x01\xa3ids", id="in an array"),
    ],
)
def test_deep_nesting_is_a_frame_error(before: bytes, nest: bytes) -> None:
    refused(before + nest * 100_000 + b"\xc0")


def test_what_is_said_of_a_refused_message_is_short_whatever_it_quotes() -> None:
    assert len(refused(packed({"op": "call-done", "call": 1, "x" * 1_000_000: 1}))) < 600
    assert len(refused(packed({"op": "y" * 1_000_000}))) < 600


# -- what is not sent -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (CallDone(call=2**64), "CallDone"),
        (CallDone(call=-1), "Expected `int` >= 0"),
        (DatasetPart(call=1, ids=["\ud800"]), "surrogates not allowed"),
        (DatasetPart(call=1, ids=[""]), "length >= 1"),
        (RolloutsEnded(call=1, rollouts=["a"], seconds=[math.nan]), "Expected `float`"),
        (
            RunGroup(
                call=1,
                split="eval",
                rollouts=[RolloutSpec(rollout_id="r" * 5000, dataset=1, position=0, model="m", base_url="u")],
                bindings=[],
            ),
            "length <= 4096 - at `$.rollouts[0].rollout_id`",
        ),
        (
            RunGroup(
                call=1,
                split="eval",
                rollouts=[RolloutSpec(rollout_id="r", dataset=1, position=0, model="m", base_url="u")],
                bindings=["b"] * 1001,
            ),
            "length <= 1000 - at `$.bindings`",
        ),
        (HeaderRequest(request=1, call=1, binding="", rollout=None, base_url="", model="", rollout_id=""), "binding"),
        (Headers(request=1, headers={"a": object()}), "Headers"),  # type: ignore[dict-item]  # the point
        (Cancel(call="1"), "Expected `int`, got `str`"),  # type: ignore[arg-type]  # the point
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_message_that_the_other_end_would_refuse_is_not_sent(message: Any, text: str) -> None:
    with pytest.raises(FrameError) as caught:
        encode(message)
    assert text in str(caught.value)


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.text(min_size=1), st.lists(st.text(min_size=1)))
def test_a_small_group_that_is_sent_without_a_second_look_is_one_that_the_other_end_takes(
    ids: list[str], model: str, bindings: list[str]
) -> None:
    specs = [RolloutSpec(rollout_id=name, dataset=1, position=0, model=model, base_url="u") for name in ids]
    message = RunGroup(call=1, split="eval", rollouts=specs, bindings=bindings)
    try:
        frame = encode(message)
    except FrameError:
        return
    assert to_worker_decoder().decode(frame[4:]) == message


def test_values_nested_in_themselves_are_not_sent() -> None:
    headers: dict[str, Any] = {}
    headers["self"] = headers
    with pytest.raises(FrameError):
        encode(Headers(request=1, headers=headers))


def test_a_message_beyond_the_frame_limit_is_not_sent() -> None:
    message = Load(
        protocol=1,
        metadata=bytes(MAX_FRAME_BYTES),
        bindings=[],
        rollout_log_bytes=0,
        transcript_bytes=0,
        dataset_examples=0,
        dataset_bytes=0,
        stall_s=1.0,
    )
    with pytest.raises(FrameError, match=rf"a Load message of \d+ bytes exceeds the limit of {MAX_FRAME_BYTES}\."):
        encode(message)


# -- the module itself ----------------------------------------------------------------------------------------


def field_types() -> list[tuple[str, ast.expr]]:
    tree = ast.parse(Path(protocol.__file__).read_text("utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found += [(node.name, item.annotation) for item in node.body if isinstance(item, ast.AnnAssign)]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            found.append((ast.unparse(node.targets[0]), node.value))
    return found


def test_no_field_has_an_open_type() -> None:
    open_types = {"Any", "Raw", "object", "Mapping", "Sequence"}
    for where, annotation in field_types():
        parents = {child: node for node in ast.walk(annotation) for child in ast.iter_child_nodes(node)}
        for node in ast.walk(annotation):
            name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            assert name not in open_types, f"{where}: {ast.unparse(annotation)}"
            if name in {"list", "dict", "tuple", "set", "frozenset"}:
                parent = parents.get(node)
                assert isinstance(parent, ast.Subscript), f"{where}: a bare {name} in {ast.unparse(annotation)}"
                assert parent.value is node, f"{where}: a bare {name} in {ast.unparse(annotation)}"


def test_every_struct_is_frozen_keyword_only_and_refuses_unknown_fields() -> None:
    parts = (protocol.RolloutSpec, protocol.RemoteFailure, protocol.Diagnostic)
    for struct_type in [*DIRECTION_OF, *parts]:
        config = struct_type.__struct_config__
        assert config.frozen, struct_type
        assert config.forbid_unknown_fields, struct_type
        assert config.tag_field == ("op" if struct_type in DIRECTION_OF else None), struct_type


def test_the_log_message_takes_text_of_exactly_the_limit() -> None:
    encode(Log(call=None, rollouts=[], stream="stdout", level=0, logger="", text="x" * MAX_TEXT_CHARS))


def test_an_outcome_without_rewards_is_a_message() -> None:
    message = Outcome(call=1, rollout_id="r", termination_reason="finished", rewards=None)
    assert DECODERS["from worker"].decode(body_of(message)) == message
