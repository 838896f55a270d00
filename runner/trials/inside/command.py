"""One command of a sandbox: started, followed, ended with its process and not before or after it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path
from typing import IO, Any, Final

from runner.trials.inside.fields import text_of, user_of
from runner.trials.inside.stream import PIECE, RequestError, Stream
from runner.trials.inside.users import Users, shell

DRAIN_S: Final = 0.2
"""How long output may still come after a command's process has ended, from what it started and left behind."""

LONGEST_WAIT_S: Final = 86_400.0
"""The system's own clocks take no number that is much larger; then it waits again."""

TIMED_OUT: Final = 124


class Command:
    """One command, from its start to the end of its process; runs in a thread of its own."""

    def __init__(self, stream: Stream, users: Users, leftovers: Leftovers, request: dict[str, Any]) -> None:
        self._stream = stream
        self._users = users
        self._leftovers = leftovers
        self.number = request["id"]
        self._line = text_of(request, "command")
        self._cwd = text_of(request, "cwd", "/")
        self._env = request.get("env") or {}
        self._user = user_of(request.get("user"))
        self._timeout = request.get("timeout_s")
        self._merge = request.get("merge", False) is True
        if not isinstance(self._env, dict) or not all(isinstance(value, str) for value in self._env.values()):
            raise RequestError("invalid", "env is not an object of texts.")
        if self._timeout is not None and (
            not isinstance(self._timeout, (int, float)) or isinstance(self._timeout, bool) or not self._timeout > 0
        ):
            raise RequestError("invalid", "timeout_s is no number of seconds.")
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Have its process group killed, or, where it has not begun, not started."""
        with self._lock:
            self._cancelled = True
            self._kill()

    def run(self) -> dict[str, object]:
        """Run it; return the answer."""
        with self._lock:
            if self._cancelled:
                raise RequestError("refused", "the command was cancelled before it began.")
            self._running = process = self._start()
        try:
            watch = os.pidfd_open(process.pid)
            try:
                timed_out = self._follow(process, watch)
            finally:
                os.close(watch)
        finally:
            with self._lock:
                if process.poll() is None:
                    self._kill()
                    process.wait()
                self._running = None
        code = process.wait()
        number = -code if code < 0 else None
        shown = TIMED_OUT if timed_out else code if number is None else 128 + number
        return {"exit": shown, "signal": number, "timed_out": timed_out}

    def _kill(self) -> None:
        # not collected yet, so its number is still its own
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def _start(self) -> subprocess.Popen[bytes]:
        uid, gid, name, home = self._users.find(self._user)
        if not Path(self._cwd).is_dir():
            raise RequestError("missing", f"the folder {self._cwd!r} to run in is not there.")
        others = bool(uid or gid)
        try:
            return subprocess.Popen(
                [shell(), "-c", self._line],
                cwd=self._cwd,
                env={**os.environ, "HOME": home, "USER": name, "LOGNAME": name, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._merge else subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                umask=0o022,
                # where there is no other user than root, the kernel does not even let root become root again
                user=uid if others else None,
                group=gid if others else None,
                extra_groups=self._users.groups(name) if others else None,
            )
        except ValueError as error:
            raise RequestError("invalid", f"the command cannot be run: {error}.") from None
        except OSError as error:
            raise RequestError("io", f"the command cannot be run: {error.strerror}.") from None

    def _follow(self, process: subprocess.Popen[bytes], watch: int) -> bool:
        """Pass on what it writes until it has ended; return whether its time was over."""
        outputs = {
            pipe.fileno(): (pipe, 2 * self.number + offset)
            for offset, pipe in enumerate((process.stdout, process.stderr))
            if pipe is not None
        }
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        poller = select.poll()
        for descriptor in (*outputs, watch):
            poller.register(descriptor, select.POLLIN)
        timed_out = False
        while True:
            left = None if deadline is None else min(max(0.0, deadline - time.monotonic()), LONGEST_WAIT_S) * 1000
            ready = {descriptor for descriptor, _ in poller.poll(left)}
            if watch in ready:
                poller.unregister(watch)
                self._drain(outputs, poller)
                return timed_out
            if deadline is not None and time.monotonic() >= deadline:
                timed_out, deadline = True, None
                with self._lock:
                    self._kill()
                continue
            for descriptor in ready:
                self._pass_on(descriptor, PIECE, outputs, poller)

    def _drain(self, outputs: dict[int, tuple[IO[bytes], int]], poller: select.poll) -> None:
        # what it wrote itself is there by now, all of it
        for descriptor in [*outputs]:
            there = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0]
            while there > 0 and descriptor in outputs:
                there -= self._pass_on(descriptor, there, outputs, poller)
        deadline = time.monotonic() + DRAIN_S
        while outputs and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                self._pass_on(descriptor, PIECE, outputs, poller)
        for pipe, _ in outputs.values():
            # whoever still writes there is not to fail at it
            self._leftovers.take(pipe)

    def _pass_on(
        self, descriptor: int, most: int, outputs: dict[int, tuple[IO[bytes], int]], poller: select.poll
    ) -> int:
        pipe, channel = outputs[descriptor]
        data = os.read(descriptor, min(most, PIECE))
        if data:
            self._stream.data(channel, data)
        else:
            poller.unregister(descriptor)
            pipe.close()
            del outputs[descriptor]
        return len(data)


class Leftovers:
    """Reads, and forgets, what processes write that their commands have left behind."""

    def __init__(self) -> None:
        self._poller = select.epoll()
        self._pipes: dict[int, IO[bytes]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def take(self, pipe: IO[bytes]) -> None:
        """Read what comes on a pipe, until it ends."""
        self._pipes[pipe.fileno()] = pipe
        self._poller.register(pipe.fileno(), select.EPOLLIN)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poller.poll():
                if not os.read(descriptor, PIECE):
                    self._poller.unregister(descriptor)
                    self._pipes.pop(descriptor).close()
