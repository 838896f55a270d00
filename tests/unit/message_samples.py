"""One honest message of every kind, made from the protocol itself, so that a kind that is added is there too."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from runner import protocol


def sample(kind: msgspec.inspect.Type) -> Any:
    """A value of a field's type: the first choice of each."""
    match kind:
        case msgspec.inspect.IntType(ge=low):
            return 1 if low is None else max(1, int(low))
        case msgspec.inspect.FloatType():
            return 0.5
        case msgspec.inspect.BoolType():
            return False
        case msgspec.inspect.StrType():
            return "r-0"
        case msgspec.inspect.BytesType():
            return b'{"x":1}'
        case msgspec.inspect.LiteralType(values=choices):
            return choices[0]
        case msgspec.inspect.ListType(item_type=item):
            return [sample(item)]
        case msgspec.inspect.DictType(key_type=key, value_type=value):
            return {sample(key): sample(value)}
        case msgspec.inspect.StructType(cls=cls):
            return message(cls)
        case msgspec.inspect.UnionType(types=members):
            return sample(next(member for member in members if not isinstance(member, msgspec.inspect.NoneType)))
        case _:
            raise AssertionError(f"no sample of {kind}")


def message(kind: type[Any]) -> Any:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return kind(**{field.name: sample(field.type) for field in info.fields})


def kinds(union: Any) -> tuple[type[Any], ...]:
    return get_args(union) or (union,)


TO_WORKER = [message(kind) for kind in kinds(protocol.ToWorker)]
FROM_WORKER = [message(kind) for kind in kinds(protocol.FromWorker)]
AUTH_TO_WORKER = [message(kind) for kind in kinds(protocol.AuthToWorker)]
AUTH_FROM_WORKER = [message(kind) for kind in kinds(protocol.AuthFromWorker)]
