"""One trial sandbox as its caller has it: made, running, ended, and its end of the stream.

Comes in: a policy and what becomes of connections. Goes out: a connected socket for whoever uses the sandbox. It ends
with that stream, with its time, when it is told to, and with this process; nothing of it is left then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from runner.egress import Egress, Handler, take_over
from runner.environ import PROXIES, network_environment
from runner.errors import RunnerError
from runner.limits import TRIAL_START_S
from runner.process import Exit, OutputTail, Process
from runner.sandbox.bubblewrap import LISTENERS_FD
from runner.sandbox.endpoints import Endpoint, listeners
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.private_root import PROGRAM, ROOT_ONLY, make_root
from runner.sandbox.view import SYSTEM, interpreter
from runner.trials.policy import fit_root
from runner.trials.program import packed_program
from runner.trials.request import TrialRefusedError

STREAM_FD: Final = 3
ERROR_BYTES: Final = 16 * 1024
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON: Final = "python3"
"""The command that every sandbox has: the system's, else the interpreter that this process runs."""


class TrialSandbox:
    """A running sandbox. Create with `TrialSandbox.start`; belongs to the event loop that created it."""

    def __init__(self, process: Process, client: socket.socket, theirs: socket.socket, egress: Egress) -> None:
        self._process = process
        self._egress = egress
        self._theirs = theirs
        self._hang_up = select.epoll()
        self.client = client
        """The stream; whoever uses the sandbox gets it, and the sandbox ends when it is closed."""
        loop = asyncio.get_running_loop()
        # from outside, too: what runs in it can stop its program, which then does not see the end of the stream
        self._hang_up.register(theirs.fileno(), 0)
        loop.add_reader(self._hang_up.fileno(), self._on_hang_up)
        self._ended = loop.create_task(self._end_with_process(), name="benchmax-trial")
        self._lifetime: asyncio.TimerHandle | None = None

    @classmethod
    async def start(
        cls, policy: SandboxPolicy, *, lifetime_s: float, routes: Mapping[Endpoint, Handler] | None = None
    ) -> TrialSandbox:
        """Make a sandbox, and wait until it takes requests.

        Args:
            policy: As `trial_policy` chooses it.
            lifetime_s: After that it is ended.
            routes: What becomes of its connections to each of the policy's endpoints.

        Raises:
            TrialRefusedError: it cannot be made here; the text says why.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        listening, listening_theirs = socket.socketpair()
        errors = OutputTail(ERROR_BYTES)
        try:
            folder, base, policy = _prepare(policy)
            try:
                process = await _start(policy, folder, base, theirs, listening_theirs, errors)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            try:
                expected = listeners(policy.endpoints) if policy.network != "open" else ()
                taken = zip(take_over(listening, len(expected)), expected, strict=True)
                egress = Egress((found, (routes or {})[where.endpoint]) for found, where in taken)
            except BaseException:
                await process.end(0)
                raise
        except (RunnerError, OSError) as error:
            ours.close()
            theirs.close()
            hint = f" {error.hint}" if isinstance(error, RunnerError) and error.hint else ""
            raise TrialRefusedError(f"a trial sandbox cannot be opened: {error}{hint}") from error
        except BaseException:
            ours.close()
            theirs.close()
            raise
        finally:
            for end in (listening, listening_theirs):
                end.close()
        sandbox = cls(process, ours, theirs, egress)
        try:
            await sandbox._greeted(errors)
        except BaseException:
            ours.close()
            await sandbox.end()
            raise
        sandbox._lifetime = asyncio.get_running_loop().call_later(lifetime_s, process.kill)
        return sandbox

    @property
    def left(self) -> bool:
        """Whether its stream has ended or it has itself, so that it is on its way to being gone."""
        return self._hang_up.closed or bool(self._hang_up.poll(0))

    async def exited(self) -> Exit:
        """Wait until the sandbox and all that ran in it are gone; return how its program ended."""
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        """End it at once, without waiting for it."""
        self._process.kill()

    async def end(self) -> Exit:
        """End it at once, and wait until it is gone. Safe to call twice."""
        self.kill()
        return await self.exited()

    def abandon(self) -> None:
        """End it without an event loop, when the one that this belongs to is closed."""
        for held in (self.client, self._theirs, self._hang_up):
            held.close()
        self._process.abandon()
        self._egress.abandon()

    async def _end_with_process(self) -> Exit:
        try:
            await self._process.exited()
            self._let_go()
            return await self._process.wait()
        finally:
            self._let_go()
            if self._lifetime is not None:
                self._lifetime.cancel()
            await self._egress.aclose()

    def _on_hang_up(self) -> None:
        self._let_go()
        self._process.kill()

    def _let_go(self) -> None:
        """Close the far end, so that the near one ends; and look after it no more."""
        if not self._hang_up.closed:
            asyncio.get_running_loop().remove_reader(self._hang_up.fileno())
            self._hang_up.close()
            self._theirs.close()

    async def _greeted(self, errors: OutputTail) -> None:
        """Wait for the first byte, which stays where it is; without one, say why there is none."""
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()

        def on_readable() -> None:
            if not readable.done():
                readable.set_result(None)

        loop.add_reader(self.client, on_readable)
        try:
            async with asyncio.timeout(TRIAL_START_S):
                await readable
        except TimeoutError:
            raise TrialRefusedError(
                f"a trial sandbox cannot be opened: it did not answer within {TRIAL_START_S:g} s. "
                "Look at what this machine is busy with."
            ) from None
        finally:
            loop.remove_reader(self.client)
        with contextlib.suppress(ConnectionResetError):
            if self.client.recv(1, socket.MSG_PEEK):
                return
        how = await self.exited()
        said = " ".join(errors.last_lines(3)) or f"{how}"
        raise TrialRefusedError(f"a trial sandbox cannot be opened: {said}. `benchmax doctor` says what works here.")


async def _start(
    policy: SandboxPolicy, folder: Path, base: str, stream: socket.socket, listening: socket.socket, errors: OutputTail
) -> Process:
    users = "one" if policy.root is None or policy.root.users == ROOT_ONLY else "range"
    proxies = network_environment() if policy.network == "open" else {}
    return await Process.start(
        [
            base,
            *("-I", "-S", "-B", PROGRAM, str(STREAM_FD), users),
            "no" if policy.network == "none" else "yes",
        ],
        env={
            **{name: value for name, value in proxies.items() if name.lower() in PROXIES},
            "PATH": SYSTEM_PATH,
            "LANG": "C.UTF-8",
        },
        cwd=Path("/"),
        policy=policy,
        descriptors={
            STREAM_FD: stream.fileno(),
            **({LISTENERS_FD: listening.fileno()} if policy.network != "open" else {}),
        },
        stderr=errors.write,
        remove=folder,
    )


def _prepare(policy: SandboxPolicy) -> tuple[Path, str, SandboxPolicy]:
    """Make the folder of a sandbox, find the interpreter for it, and fit the policy to both."""
    # a path without links: the launcher mounts at it
    folder = Path(tempfile.mkdtemp(prefix="benchmax-trial-", dir=os.path.realpath(tempfile.gettempdir())))
    try:
        base = os.path.realpath(sys.executable)
        readable = interpreter(base)
        make_root(folder, readable)
        if not any(_is_there(Path(place, PYTHON), readable) for place in SYSTEM_PATH.split(":")):
            (folder / "layer" / "local" / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "layer" / "local" / "bin" / PYTHON).symlink_to(base)
        return folder, base, fit_root(policy, folder=folder, program=packed_program(), readable=readable)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_there(command: Path, readable: Sequence[str]) -> bool:
    """Whether a command of the system's is one inside, too: it may be a link to what is not shown."""
    found = command.resolve()
    return found.exists() and any(found.is_relative_to(shown) for shown in (SYSTEM, *readable))
