"""What a worker is made of, and how its process gets it: sockets, sealed memory files, a private folder.

Comes in: a `Launch`. Goes out: a `Launched`, whose process runs and has not said anything yet.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmax.bundle import BundleMetadata
from runner.egress import Egress, Handler, take_over
from runner.environ import CERTIFICATES, HASH_SEED, worker_environment
from runner.limits import MAX_DUMP_BYTES, Limits
from runner.process import OutputTail, Process
from runner.protocol import AUTH_FD, BUNDLE_FD, DUMP_FD, TRIAL_FD, WORK_FD
from runner.provision.venv import Venv
from runner.sandbox.bubblewrap import LISTENERS_FD
from runner.sandbox.data import DataCopies, make_overlay
from runner.sandbox.endpoints import Endpoint, listeners
from runner.sandbox.fitting import fit
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.view import interpreter
from runner.variables import SecretVariables

CERTIFICATES_FILE: Final = "certificates.pem"
"""What a worker trusts, in its own folder, where it cannot write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything a worker is made of.

    Args:
        python: The venv's interpreter.
        prefix: Where that interpreter must find its standard library, with all symbolic links resolved.
        boot: First file of the worker's code.
        pickled: The bundle's pickle, exactly the bytes that were digested.
        metadata: The bundle's metadata; the worker must report its series of Python and of benchmax.
        policy: How it is confined.
        limits: What it may use.
        readable: What it reads beside the system and its own code: venv, interpreter, certificates.
        data: A folder of the caller's that it is to have as an overlay, as `can_overlay` says that it can.
        secrets: Variables of its environment beside those that every worker has.
        routes: What becomes of its connections to each of the policy's endpoints.
        trusted: Certificates of all authorities that it is to trust, as PEM; `None` leaves it to those of the caller.
        direct: A host that it reaches without any proxy.
        hash_seed: What hashes of texts depend on in it.
    """

    python: Path
    prefix: Path
    boot: Path
    pickled: bytes
    metadata: BundleMetadata
    policy: SandboxPolicy
    limits: Limits
    readable: tuple[str, ...] = ()
    data: Path | None = None
    secrets: SecretVariables = field(default_factory=SecretVariables)
    routes: Mapping[Endpoint, Handler] = field(default_factory=dict)
    trusted: bytes | None = None
    direct: str | None = None
    hash_seed: str = HASH_SEED


def what_it_reads(venv: Venv, policy: SandboxPolicy, *, certificates: bool = True) -> tuple[str, ...]:
    """Return what a worker reads beside the system and its own code: venv, interpreter, certificates.

    Args:
        venv: Its venv.
        policy: How it is confined.
        certificates: Whether it trusts what the caller's own variables name.

    Raises:
        SandboxUnavailableError: the interpreter lies in a folder that holds more than it.
    """
    if policy.level == "off":
        return ()
    named = [os.environ[name] for name in CERTIFICATES if os.environ.get(name)] if certificates else []
    return (str(venv.path), *interpreter(str(venv.base_python)), *named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The caller's end of a worker's process.

    Args:
        process: The process and its tree.
        work: Socket of the work channel.
        auth: Socket of the auth channel.
        trials: Socket on which the sandboxes of trials are handed over.
        dump: Memory file in which its interpreter writes where it was when it crashed or was asked by signal.
        folder: What is its own: `private`, and `data` for what is copied for it; its supervisor removes it, too.
        stdout: What it wrote to its standard output.
        stderr: The same for standard error.
        policy: How it is confined.
        egress: Takes the connections that it makes in a network of its own.
    """

    process: Process
    work: socket.socket
    auth: socket.socket
    trials: socket.socket
    dump: int
    folder: Path
    stdout: OutputTail
    stderr: OutputTail
    policy: SandboxPolicy
    egress: Egress
    _copies: DataCopies

    def abandon(self) -> None:
        """Close all sockets without an event loop."""
        self.work.close()
        self.auth.close()
        self.trials.close()
        self.egress.abandon()

    def data(self, base_dir: Path) -> Path:
        """Return where the worker finds a folder of the caller: there, or in a sandbox its own overlay or copy of it.

        Raises:
            UsageError: it is too large to copy.
            OSError: it cannot be read or copied.
        """
        overlay = self.policy.overlay
        if overlay is not None and overlay.lower == str(base_dir):
            return Path(overlay.target)
        return base_dir if self.policy.level == "off" else self._copies.of(base_dir)

    @classmethod
    async def start(cls, launch: Launch) -> Launched:
        """Start a worker's process.

        Raises:
            RunnerError: the interpreter could not be executed; the text says why.
        """
        folder, policy = _prepare(launch)
        private = folder / "private"
        work, work_theirs = socket.socketpair()
        auth, auth_theirs = socket.socketpair()
        trials, trials_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening, listening_theirs = socket.socketpair()
        bundle = _bundle_file(launch.pickled)
        dump = _dump_file()
        stdout, stderr = OutputTail(launch.limits.output_bytes), OutputTail(launch.limits.output_bytes)
        try:
            process = await Process.start(
                [str(launch.python), "-s", "-P", "-X", "utf8", str(launch.boot), str(launch.prefix)],
                env={
                    **launch.secrets,
                    **worker_environment(
                        private,
                        launch.python,
                        proxies=policy.network == "open",
                        direct=launch.direct,
                        trusted=None if launch.trusted is None else folder / CERTIFICATES_FILE,
                        hash_seed=launch.hash_seed,
                    ),
                },
                cwd=private / "work",
                policy=policy,
                descriptors={
                    WORK_FD: work_theirs.fileno(),
                    AUTH_FD: auth_theirs.fileno(),
                    BUNDLE_FD: bundle,
                    DUMP_FD: dump,
                    TRIAL_FD: trials_theirs.fileno(),
                    **({LISTENERS_FD: listening_theirs.fileno()} if policy.network != "open" else {}),
                },
                stdout=stdout.write,
                stderr=stderr.write,
                remove=folder,
            )
            try:
                expected = listeners(policy.endpoints) if policy.network != "open" else ()
                taken = zip(take_over(listening, len(expected)), expected, strict=True)
                egress = Egress((found, launch.routes[where.endpoint]) for found, where in taken)
            except BaseException:
                await process.end(0)
                raise
        except BaseException:
            work.close()
            auth.close()
            trials.close()
            os.close(dump)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            work_theirs.close()
            auth_theirs.close()
            trials_theirs.close()
            listening.close()
            listening_theirs.close()
            os.close(bundle)
        return cls(
            process=process,
            work=work,
            auth=auth,
            trials=trials,
            dump=dump,
            folder=folder,
            stdout=stdout,
            stderr=stderr,
            policy=policy,
            egress=egress,
            _copies=DataCopies(folder / "data", folder / "staging", policy.uid, launch.limits),
        )


def _prepare(launch: Launch) -> tuple[Path, SandboxPolicy]:
    """Make a worker's folders, and fit the policy to them: what it may change is below, never the outer folder."""
    # a path without links: a sandbox shows it by that name
    folder = Path(tempfile.mkdtemp(prefix="benchmax-worker-", dir=os.path.realpath(tempfile.gettempdir())))
    for name in ("private/home", "private/tmp", "private/work", "data", "staging"):
        (folder / name).mkdir(parents=True)
    certificates = []
    if launch.trusted is not None:
        file = folder / CERTIFICATES_FILE
        file.write_bytes(launch.trusted)
        file.chmod(0o644)
        certificates.append(str(file))
    policy = fit(
        launch.policy,
        this_machine(),
        private=folder / "private",
        data=folder / "data",
        readable=(*launch.readable, str(launch.boot.parent.parent), *certificates),
    )
    if policy.uid is not None:
        # its user has to get through
        folder.chmod(0o711)
        (folder / "data").chmod(0o755)
        (folder / "staging").chmod(0o700)
    if launch.data is not None:
        policy = replace(policy, overlay=make_overlay(launch.data, folder))
    return folder, policy


def _bundle_file(data: bytes) -> int:
    """Put bytes into a memory file that nobody can change any more; return its descriptor."""
    descriptor = os.memfd_create("bundle", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        _seal(descriptor, fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _dump_file() -> int:
    """Make a memory file of fixed size; return its descriptor."""
    descriptor = os.memfd_create("dump", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, MAX_DUMP_BYTES)
        _seal(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _seal(descriptor: int, more: int = 0) -> None:
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | more)
