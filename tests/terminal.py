"""A real pseudo-terminal and what a person would see on it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import termios
import threading
from collections.abc import Callable
from typing import Final, Self

from rich.cells import cell_len

WAIT_S: Final = 30.0

_COMMAND: Final = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])")
_UNFINISHED: Final = re.compile(r"\x1b(\[[?0-9;]*)?\Z")


class Screen:
    """Rows of a terminal, as the few commands leave them that progress needs; any other is an error."""

    def __init__(self, rows: int, columns: int) -> None:
        self._columns = columns
        self._rows = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self.lines_scrolled = 0
        self.cursor_is_shown = True
        self.styled = False

    @property
    def lines(self) -> list[str]:
        """What is to be seen, without empty rows."""
        return [line for row in self._rows if (line := "".join(row).rstrip())]

    def write(self, text: str) -> None:
        """Take text as a terminal does."""
        at = 0
        while at < len(text):
            found = _COMMAND.match(text, at)
            if found is not None:
                self._obey(*found.groups())
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._feed()
        else:
            assert character.isprintable(), repr(character)
            width = cell_len(character)
            if self._column + width > self._columns:
                self._column = 0
                self._feed()
            self._rows[self._row][self._column] = character
            if width == 2:
                self._rows[self._row][self._column + 1] = ""
            self._column += width

    def _feed(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._row -= 1
            self._rows.append([" "] * self._columns)
            del self._rows[0]
            self.lines_scrolled += 1

    def _obey(self, argument: str, command: str) -> None:
        match argument, command:
            case count, "A":
                self._row = max(0, self._row - int(count or 1))
            case "2", "K":
                self._rows[self._row] = [" "] * self._columns
            case "?25", "h" | "l":
                self.cursor_is_shown = command == "h"
            case _, "m":
                self.styled = True
            case _:
                raise AssertionError(f"a command that moves more than a line: {argument}{command}")


class Terminal:
    """A pseudo-terminal that is read all the time. Use as a context manager.

    Args:
        rows: Its height.
        columns: Its width.
    """

    def __init__(self, rows: int = 24, columns: int = 80) -> None:
        self.screen = Screen(rows, columns)
        self.sent = b""
        self._master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._hanging_up = os.pipe()
        self._changed = threading.Condition()
        self._wrong: AssertionError | None = None
        self._reading = threading.Thread(target=self._read, name="terminal", daemon=True)

    def __enter__(self) -> Self:
        self._reading.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self.hang_up()
        if self._wrong is not None:
            raise self._wrong

    def release(self) -> None:
        """Close this process's end of the programs' side; reading ends when theirs are closed too."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def hang_up(self) -> None:
        """Close the terminal: whoever has it for its own is told so."""
        if self._master >= 0:
            os.write(self._hanging_up[1], b"!")
            self._reading.join()
            for descriptor in (self._master, *self._hanging_up):
                os.close(descriptor)
            self._master = -1

    def type(self, data: bytes) -> None:
        """Press keys."""
        os.write(self._master, data)

    def until(self, fits: Callable[[list[str]], bool]) -> list[str]:
        """Return what is to be seen as soon as that fits."""
        seen: list[str] = []

        def fitting() -> bool:
            nonlocal seen
            seen = self.screen.lines
            return self._wrong is not None or fits(seen)

        with self._changed:
            assert self._changed.wait_for(fitting, WAIT_S), "\n".join(self.screen.lines)
        if self._wrong is not None:
            raise self._wrong
        return seen

    def until_there_is(self, text: str) -> list[str]:
        """Return what is to be seen as soon as a row of it holds a text."""
        return self.until(lambda lines: any(text in line for line in lines))

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        held = ""
        while True:
            ready, _, _ = select.select([self._master, self._hanging_up[0]], [], [])
            if self._master not in ready:
                return
            try:
                data = os.read(self._master, 65536)
            except OSError:
                # nobody has the other side any more
                return
            with self._changed:
                self.sent += data
                held += decoder.decode(data)
                # a command may come in two pieces
                cut = _UNFINISHED.search(held)
                whole, held = (held, "") if cut is None else (held[: cut.start()], cut[0])
                try:
                    self.screen.write(whole)
                except AssertionError as error:
                    self._wrong = error
                self._changed.notify_all()
