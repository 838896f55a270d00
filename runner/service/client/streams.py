"""Reading an event stream: lines into events, whatever pieces they come in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a stream.

    Args:
        id: The number to go on from after it; `None` where it has none.
        kind: Its event's name.
        data: Its data lines, joined.
    """

    id: int | None
    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class Pause:
    """The server asks to wait before the next connection.

    Args:
        seconds: For how long.
    """

    seconds: float


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[Message | Pause]:
    """Turn the lines of a stream into what they mean; comments, which keep it alive, mean nothing.

    Args:
        lines: Without their line breaks. A message that has no empty line after it is cut off, and is not given.
    """
    number: int | None = None
    kind, data = "message", list[str]()
    async for line in lines:
        if not line:
            if data:
                yield Message(number, kind, "\n".join(data))
            number, kind, data = None, "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id" and value.isdecimal() and value.isascii():
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "retry" and value.isdecimal() and value.isascii():
            yield Pause(int(value) / 1000)
