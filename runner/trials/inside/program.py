"""Takes requests from the stream, and has each carried out in a thread of its own."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from runner.trials.inside.command import Command, Leftovers
from runner.trials.inside.fields import check_fields
from runner.trials.inside.files import Incoming, Outgoing, get, look, put
from runner.trials.inside.stream import RequestError, Stream
from runner.trials.inside.users import Users

MOST: Final = 256
"""Operations at once: each has a thread."""

PR_SET_DUMPABLE: Final = 4


class Program:
    """Takes requests, and has each carried out in a thread of its own."""

    def __init__(self, stream: Stream, users: Users) -> None:
        self._stream = stream
        self._users = users
        self._leftovers = Leftovers()
        self._commands: dict[int, Command] = {}
        self._uploads: dict[int, Incoming] = {}
        self._running = threading.Semaphore(MOST)

    def run(self) -> int:
        """Go on until the stream ends."""
        while (frame := self._stream.frame()) is not None:
            kind, payload = frame
            if kind == b"D" and len(payload) >= 4:
                number = struct.unpack_from(">I", payload)[0] // 2
                upload = self._uploads.get(number)
                if upload is not None:
                    upload.push(payload[4:])
                    if len(payload) == 4:
                        self._uploads.pop(number, None)
            elif kind == b"J":
                try:
                    request = json.loads(payload)
                except (ValueError, RecursionError):
                    return 2
                number = request.get("id") if isinstance(request, dict) else None
                if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 1 << 31:
                    return 2
                self._take(number, request)
            else:
                return 2
        return 0

    def _take(self, number: int, request: dict[str, Any]) -> None:
        if request.get("op") == "cancel":
            of = request.get("of")
            command = self._commands.get(of) if isinstance(of, int) else None
            if command is not None:
                command.cancel()
            self._stream.answer(id=number, ok=True)
            return
        if not self._running.acquire(blocking=False):
            self._fail(number, "refused", f"{MOST} operations are under way.")
            return
        try:
            threading.Thread(
                target=self._carry_out, args=(number, self._prepared(number, request)), daemon=True
            ).start()
        except RequestError as error:
            self._drop(number)
            self._fail(number, error.kind, str(error))
        except RuntimeError:
            # nobody would read what comes for it
            self._uploads.pop(number, None)
            self._drop(number)
            self._fail(number, "io", "no thread can be made: there are as many processes as there may be.")

    def _prepared(self, number: int, request: dict[str, Any]) -> Callable[[], dict[str, object]]:
        match check_fields(request):
            case "exec":
                self._commands[number] = command = Command(self._stream, self._users, self._leftovers, request)
                return command.run
            case "put":
                self._uploads[number] = upload = Incoming()
                return partial(put, request, upload, self._users)
            case "get":
                return partial(get, request, Outgoing(self._stream, 2 * number))
            case _:
                return partial(look, request)

    def _carry_out(self, number: int, operation: Callable[[], dict[str, object]]) -> None:
        try:
            answer = operation()
        except RequestError as error:
            self._fail(number, error.kind, str(error))
        except FileNotFoundError as error:
            self._fail(number, "missing", f"{error.filename!r} is not there.")
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an answer
            self._fail(number, "io", f"{type(error).__name__}: {error}")
        else:
            self._stream.answer(id=number, **answer)
        finally:
            self._drop(number)

    def _drop(self, number: int) -> None:
        self._commands.pop(number, None)
        self._running.release()

    def _fail(self, number: int, kind: str, message: str) -> None:
        self._stream.answer(id=number, error={"kind": kind, "message": message[:2000]})


def main() -> int:
    """Say that all is ready, and take requests."""
    descriptor, users, network = sys.argv[1:]
    os.umask(0o022)
    sock = socket.socket(fileno=int(descriptor))
    sock.set_inheritable(False)
    # commands are the same user, and could otherwise change this program's memory
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    stream = Stream(sock)
    stream.answer(ready=True, users=users, network=network == "yes", pid=os.getpid())
    return Program(stream, Users(users == "range")).run()
