"""Follows a pickle's instructions as an unpickler would, with descriptions in place of objects.

The order of the stack, of marks and of what is referred back to is exactly that of loading, so that a name or an
argument is known however it came to where it is used. Nothing is imported, called or made. What is kept is bounded: of
a pickle beyond that, what is called is still judged, and what could not be known is told.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from runner.inspecting.bounds import (
    LATE_MEMBERS,
    LATE_STACK,
    MAX_MEMBERS,
    MAX_MEMO,
    MAX_NODES,
    MAX_OPCODES,
    MAX_STACK,
    OUTERMOST,
)
from runner.inspecting.lookup import called, looked_up
from runner.inspecting.opcodes import HIGHEST_PROTOCOL, PUSHED, Argument, BrokenPickleError, Op, instructions
from runner.inspecting.values import UNKNOWN, Blob, Call, Global, Group, Pairs, Value, members
from runner.inspecting.verdicts import FILLS, deed
from runner.inspecting.witness import Witness
from runner.text import one_line

_BINGET, _MEMOIZE = int(Op.BINGET), int(Op.MEMOIZE)


class Machine:
    """One pickle's instructions, followed.

    Args:
        data: The pickle and whatever follows it.
        witness: Is told what is seen.
        max_opcodes: Instructions to follow at most.
    """

    def __init__(self, data: bytes, witness: Witness, *, max_opcodes: int = MAX_OPCODES) -> None:
        self.protocol = 0
        self.opcodes = 0
        self.end = 0
        self.result: Value = UNKNOWN
        self.unfinished = ""
        self.nested: list[tuple[int, int]] = []
        self._data = data
        self._witness = witness
        self._max_opcodes = max_opcodes
        self._stack: list[Value] = []
        self._marks: list[int] = []
        self._memo: dict[int, Value] = {}
        self._forgotten = 0
        self._nodes = 0
        self._frame_end = 0
        self._position = 0

    def run(self) -> None:
        """Follow the pickle to its end, or as far as the bounds allow: then `unfinished` says what was not judged.

        Raises:
            BrokenPickleError: loading it would fail where this says.
        """
        stack, marks, memo, pushed, most = self._stack, self._marks, self._memo, PUSHED, self._max_opcodes
        handlers = _HANDLERS
        count = 0
        try:
            for position, op, argument in instructions(self._data, self.nested):
                count += 1
                if op in pushed:
                    stack.append(argument)  # type: ignore[arg-type] # two names belong to instructions that push none
                elif op == _BINGET and argument in memo:
                    stack.append(memo[argument])  # type: ignore[index] # it is a number then
                elif op == _MEMOIZE:
                    if len(memo) < MAX_MEMO:
                        self._position = position
                        value = stack[-1] if not marks else self._top()
                        memo[len(memo)] = UNKNOWN if isinstance(value, Group) and value.late else value
                    else:
                        self._forgotten += 1
                else:
                    self._position = position
                    handlers[op](self, argument)
                if count >= most and op != Op.STOP:
                    self.unfinished = f"it has more than {most:,} instructions"
                    break
                if len(stack) > MAX_STACK:
                    self.unfinished = f"it holds more than {MAX_STACK:,} values at once"
                    break
        except IndexError:
            raise BrokenPickleError("an instruction takes more than there is", self._position) from None
        finally:
            self.opcodes = count

    # -- the stack ----------------------------------------------------------------------------------------------

    def _pop(self) -> Value:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise BrokenPickleError("an instruction takes a value and finds a mark", self._position)
        return self._stack.pop()

    def _top(self) -> Value:
        if self._marks and len(self._stack) <= self._marks[-1]:
            raise BrokenPickleError("an instruction takes a value and finds a mark", self._position)
        return self._stack[-1]

    def _pop_mark(self) -> list[Value]:
        if not self._marks:
            raise BrokenPickleError("an instruction goes back to a mark, and there is none", self._position)
        begin = self._marks.pop()
        taken = self._stack[begin:]
        del self._stack[begin:]
        return taken

    def _remember(self, index: int, position: int) -> None:
        self._position = position
        value = self._top()
        if index > len(self._data):
            message = f"refers back to number {index:,}, for which loading takes that much memory"
            self._witness.find("warning", "memory", message, position)
        if len(self._memo) < MAX_MEMO or index in self._memo:
            self._memo[index] = UNKNOWN if isinstance(value, Group) and value.late else value
        else:
            self._forgotten += 1

    def _recall(self, index: object, position: int) -> None:
        value = self._memo.get(index, _MISSING) if isinstance(index, int) else _MISSING
        if isinstance(value, _Missing):
            if not self._forgotten:
                raise BrokenPickleError(f"it refers back to number {index}, which there is not", position)
            value = UNKNOWN
        self._stack.append(value)

    @property
    def _late(self) -> bool:
        """Whether no more is kept; what holds all else, such as a constructor's arguments, is kept a little longer."""
        return self._nodes > MAX_NODES and (len(self._stack) > OUTERMOST or self._nodes > 2 * MAX_NODES)

    # -- what is kept -------------------------------------------------------------------------------------------

    def _kept(self, values: list[Value], there: int = 0) -> list[Value]:
        """Return those members that may be kept in something that is not a tuple and holds some already."""
        if self._late:
            return []
        kept = values[: max(0, MAX_MEMBERS - there)]
        self._nodes += 1 + len(kept)
        return [UNKNOWN if isinstance(one, Group) and one.late else one for one in kept]

    def _group(self, kind: Literal["list", "set", "frozenset"], values: list[Value]) -> Group:
        kept = self._kept(values)
        return Group(kind, kept, len(values) - len(kept))

    def _tuple(self, values: list[Value]) -> Group:
        # a call's arguments are a tuple, so those of the last one have to be known, too
        late = self._late
        room = MAX_MEMBERS if not late else LATE_MEMBERS if len(self._stack) < LATE_STACK else 0
        kept = values[:room]
        if late:
            kept = [UNKNOWN if isinstance(one, Group) else one for one in kept]
        else:
            self._nodes += 1 + len(kept)
        return Group("tuple", kept, len(values) - len(kept), late)

    def _pairs(self, values: list[Value], there: int = 0) -> list[tuple[Value, Value]]:
        if len(values) % 2:
            raise BrokenPickleError("a dict is given a key without a value", self._position)
        kept = self._kept(values[: 2 * MAX_MEMBERS], 2 * there - MAX_MEMBERS)
        return [*zip(kept[::2], kept[1::2], strict=False)]

    def _extend(self, target: Value, values: list[Value]) -> None:
        if isinstance(target, Group):
            if self._late:
                target.dropped += len(values)
                return
            kept = self._kept(values, len(target.members))
            target.members += kept
            target.dropped += len(values) - len(kept)
        else:
            self._witness.fill(target, "adds to", self._position)

    def _set(self, target: Value, values: list[Value]) -> None:
        if isinstance(target, Pairs) and self._late and not len(values) % 2:
            target.dropped += len(values) // 2
            return
        kept = self._pairs(values, len(target.members) if isinstance(target, Pairs) else 0)
        if isinstance(target, Pairs):
            target.members += kept
            target.dropped += len(values) // 2 - len(kept)
        else:
            self._witness.fill(target, "sets members of", self._position)

    # -- names and calls ----------------------------------------------------------------------------------------

    def _import(self, module: Value, name: Value) -> Value:
        if isinstance(module, str) and isinstance(name, str):
            found = Global(*self._today(module, name))
            self._imported(found)
            return found
        if UNKNOWN in (module, name):
            self._doubt("it imports by a name that")
        if any(isinstance(one, Blob) and one.kind == "text" for one in (module, name)):
            self._witness.find("warning", "unread-name", "imports something by a name too long to read", self._position)
        elif module is UNKNOWN or name is UNKNOWN:
            self._witness.find(
                "warning", "unread-name", "imports something by a name that could not be followed", self._position
            )
        else:
            raise BrokenPickleError("it imports by something that is no name", self._position)
        return UNKNOWN

    def _imported(self, found: Global) -> None:
        self._witness.imported(found, self._position)
        if deed(found.module, found.name):
            self._doubt(f"it imports {one_line(found.path)}, and what that is handed to")

    def _doubt(self, what: str) -> None:
        """Tell that something is not known which would have to be, if that is for what is not kept any more."""
        if self._nodes > MAX_NODES or self._forgotten:
            self.unfinished = self.unfinished or f"{what} came after more than is kept of it"

    def _today(self, module: str, name: str) -> tuple[str, str]:
        """Return the names of Python 3 for those of Python 2, as loading an old protocol does."""
        if self.protocol >= 3:
            return module, name
        if (module, name) in NAME_MAPPING:
            return NAME_MAPPING[module, name]
        return IMPORT_MAPPING.get(module, module), name

    def _call(self, callee: Value, arguments: Value) -> None:
        target, given = called(callee, arguments)
        self._witness.call(target, given, self._position)
        found = looked_up(target, given)
        if found is not None:
            self._imported(found)
            self._stack.append(found)
            return
        if not isinstance(target, Global):
            self._doubt("it calls what")
        if isinstance(arguments, Group) and arguments.late:
            arguments = UNKNOWN
        if self._late and not isinstance(callee, Global):
            callee = UNKNOWN
        result = Call(callee, arguments, self._position)
        self._nodes += 1
        self._witness.made(result)
        if isinstance(callee, Global) and callee.path in FILLS:
            filled = members(arguments)
            if len(filled) > 1:
                self._fill(filled[0], filled[1])
        self._stack.append(result)

    def _call_top(self, _: Argument) -> None:
        arguments = self._pop()
        self._call(self._pop(), arguments)

    def _call_with_names(self, _: Argument) -> None:
        named = self._pop()
        arguments = self._pop()
        if isinstance(named, Pairs):
            arguments = self._tuple([*members(arguments), *(item for _, item in named.members)])
        self._call(self._pop(), arguments)

    def _call_marked(self, _: Argument) -> None:
        values = self._pop_mark()
        if not values:
            raise BrokenPickleError("it calls, and there is nothing to call", self._position)
        self._call(values[0], self._tuple(values[1:]))

    def _call_named(self, argument: Argument) -> None:
        values = self._pop_mark()
        self._global(argument)
        self._call(self._pop(), self._tuple(values))

    def _global(self, argument: Argument) -> None:
        # a name that is too long to keep is not there
        module, name = argument if isinstance(argument, tuple) else (UNKNOWN, UNKNOWN)
        self._stack.append(self._import(module, name))

    def _stack_global(self, _: Argument) -> None:
        name = self._pop()
        self._stack.append(self._import(self._pop(), name))

    def _build(self, _: Argument) -> None:
        state = self._pop()
        target = self._top()
        self._witness.fill(target, "changes", self._position)
        self._fill(target, state)

    def _fill(self, target: Value, state: Value) -> None:
        if isinstance(target, Call) and not self._late:
            target.state = state
            self._nodes += 1

    # -- the other instructions ---------------------------------------------------------------------------------

    def _protocol(self, argument: Argument) -> None:
        if not isinstance(argument, int) or argument > HIGHEST_PROTOCOL:
            raise BrokenPickleError(
                f"it is of protocol {argument!r}, and there are 0 to {HIGHEST_PROTOCOL}", self._position
            )
        self.protocol = argument

    def _frame(self, argument: Argument) -> None:
        size = argument if isinstance(argument, int) else 0
        begin = self._position + 9
        if begin + size > len(self._data):
            raise BrokenPickleError(
                f"it is cut short: a frame announces {size:,} bytes, and {len(self._data) - begin:,} follow",
                self._position,
            )
        if self._position < self._frame_end:
            self._witness.find(
                "warning", "frames", "has a frame inside another one, as no packing makes", self._position
            )
        self._frame_end = begin + size

    def _stop(self, _: Argument) -> None:
        self.result = self._pop()
        self.end = self._position + 1
        if self._marks or self._stack:
            self._witness.find("note", "leftover", "leaves values behind that are never used", self._position)
        if self.end < self._frame_end:
            self._witness.find("note", "frames", "ends before its last frame does", self._position)

    def _discard(self, _: Argument) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self._stack.pop()

    def _persistent(self, argument: Argument, *, on_stack: bool) -> None:
        if on_stack:
            self._pop()
        message = "asks for an object of whoever loads it by a persistent id, so that loading it fails"
        self._witness.find("warning", "persistent-id", message, self._position)
        self._stack.append(UNKNOWN)

    def _extension(self, argument: Argument) -> None:
        message = f"imports what whoever loads it has registered under the number {argument!r}"
        self._witness.find("warning", "extension", message, self._position)
        self._stack.append(UNKNOWN)

    def _buffer(self, _: Argument) -> None:
        message = "asks for data that is not in it, so that loading it fails"
        self._witness.find("warning", "buffer", message, self._position)
        self._stack.append(UNKNOWN)

    def _put(self, argument: Argument) -> None:
        self._remember(argument if isinstance(argument, int) else 0, self._position)

    def _get(self, argument: Argument) -> None:
        self._recall(argument, self._position)

    def _append_one(self, _: Argument) -> None:
        value = self._pop()
        self._extend(self._top(), [value])

    def _append_many(self, _: Argument) -> None:
        values = self._pop_mark()
        self._extend(self._top(), values)

    def _set_one(self, _: Argument) -> None:
        value = self._pop()
        key = self._pop()
        self._set(self._top(), [key, value])

    def _set_many(self, _: Argument) -> None:
        values = self._pop_mark()
        self._set(self._top(), values)

    def _dict(self, _: Argument) -> None:
        values = self._pop_mark()
        kept = self._pairs(values)
        self._stack.append(Pairs(kept, len(values) // 2 - len(kept)))

    def _some(self, count: int) -> None:
        stack = self._stack
        begin = len(stack) - count
        if begin < (self._marks[-1] if self._marks else 0):
            raise BrokenPickleError("a tuple takes more than there is", self._position)
        values = stack[begin:]
        del stack[begin:]
        stack.append(self._tuple(values))


class _Missing:
    """Nothing is remembered under a number."""


_MISSING: Final = _Missing()

_Handler: TypeAlias = Callable[[Machine, Argument], object]

_HANDLERS: Final[dict[int, _Handler]] = {
    Op.MARK: lambda self, _: self._marks.append(len(self._stack)),
    Op.STOP: Machine._stop,
    Op.POP: Machine._discard,
    Op.POP_MARK: lambda self, _: self._pop_mark(),
    Op.DUP: lambda self, _: self._stack.append(self._top()),
    Op.PROTO: Machine._protocol,
    Op.FRAME: Machine._frame,
    Op.NEWTRUE: lambda self, _: self._stack.append(True),
    Op.NEWFALSE: lambda self, _: self._stack.append(False),
    Op.EMPTY_TUPLE: lambda self, _: self._stack.append(self._tuple([])),
    Op.TUPLE1: lambda self, _: self._some(1),
    Op.TUPLE2: lambda self, _: self._some(2),
    Op.TUPLE3: lambda self, _: self._some(3),
    Op.TUPLE: lambda self, _: self._stack.append(self._tuple(self._pop_mark())),
    Op.EMPTY_LIST: lambda self, _: self._stack.append(self._group("list", [])),
    Op.LIST: lambda self, _: self._stack.append(self._group("list", self._pop_mark())),
    Op.EMPTY_SET: lambda self, _: self._stack.append(self._group("set", [])),
    Op.FROZENSET: lambda self, _: self._stack.append(self._group("frozenset", self._pop_mark())),
    Op.EMPTY_DICT: lambda self, _: self._stack.append(Pairs([])),
    Op.DICT: Machine._dict,
    Op.APPEND: Machine._append_one,
    Op.APPENDS: Machine._append_many,
    Op.ADDITEMS: Machine._append_many,
    Op.SETITEM: Machine._set_one,
    Op.SETITEMS: Machine._set_many,
    Op.GLOBAL: Machine._global,
    Op.STACK_GLOBAL: Machine._stack_global,
    Op.INST: Machine._call_named,
    Op.OBJ: Machine._call_marked,
    Op.NEWOBJ: Machine._call_top,
    Op.NEWOBJ_EX: Machine._call_with_names,
    Op.REDUCE: Machine._call_top,
    Op.BUILD: Machine._build,
    Op.GET: Machine._get,
    Op.BINGET: Machine._get,
    Op.LONG_BINGET: Machine._get,
    Op.PUT: Machine._put,
    Op.BINPUT: Machine._put,
    Op.LONG_BINPUT: Machine._put,
    Op.PERSID: lambda self, argument: self._persistent(argument, on_stack=False),
    Op.BINPERSID: lambda self, argument: self._persistent(argument, on_stack=True),
    Op.EXT1: Machine._extension,
    Op.EXT2: Machine._extension,
    Op.EXT4: Machine._extension,
    Op.NEXT_BUFFER: Machine._buffer,
    Op.READONLY_BUFFER: lambda self, _: self._top(),
}
"""What every instruction does that does not merely put its argument on the stack."""
