"""Every error the runner raises, as one tree.

    RunnerError
    ├── UsageError
    │   └── SettingsError
    ├── ArtifactError
    ├── DatasetError
    ├── RemoteError
    ├── ProvisionError
    │   ├── InterpreterNotFoundError
    │   ├── IncompatibleBundleError
    │   ├── RequirementError
    │   ├── BuildError
    │   ├── IndexUnreachableError
    │   ├── InstallTimeoutError
    │   └── CacheError
    ├── SandboxUnavailableError
    ├── FrameError
    ├── WorkerError
    │   ├── WorkerStartError
    │   └── WorkerLostError
    │       └── RestartsUsedUpError
    ├── HeadersRefusedError
    │   ├── HeaderLimitError
    │   └── CredentialSourceError
    ├── EndpointError
    └── ServiceError
        ├── DatabaseError
        ├── QuotaError
        ├── LeaseLostError
        ├── ConflictError
        └── ClientError
            ├── ServiceUnreachableError
            ├── ServiceFaultError
            ├── ServiceBusyError
            └── ServiceRefusedError
                ├── KeyRefusedError
                └── NotFoundError

`code` is stable and unique: match on it, not on wording. `fault` says who has to act, and decides the exit code
of the command line: the `bundle` (1), the caller's `usage` (2), or the `host` (3, could not judge).

This file is shipped into the worker, so it needs nothing but the standard library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

Fault = Literal["bundle", "usage", "host"]


class RunnerError(Exception):
    """Raised when the runner cannot do what it was asked; the root of everything it raises on purpose.

    Args:
        message: What failed and the fact behind it, in one line.
        hint: What to do next, in one line; empty where there is nothing useful to say.
        detail: Further lines (an installer's output, the worker's last words), shown only on demand.
    """

    code: ClassVar[str] = "runner"
    fault: ClassVar[Fault] = "host"

    def __init__(self, message: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.message} {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # hint and detail are keyword-only, so the default reduction would lose them
        return (type(self), (self.message,), {**self.__dict__})


class UsageError(RunnerError):
    """Raised when the call itself cannot be meant: a missing path, an unknown target, contradicting options."""

    code = "usage"
    fault = "usage"


class SettingsError(UsageError):
    """Raised when settings of a service cannot be meant.

    Args:
        message: All of it, in one line.
        problems: Each with its place and what to do, in one line.
    """

    code = "settings"

    def __init__(self, message: str, *, problems: Sequence[str] = (), hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.problems = tuple(problems)


class ArtifactError(RunnerError):
    """Raised when an artifact's files are there but broken: metadata that is not JSON, an empty pickle."""

    code = "artifact"
    fault = "bundle"


class DatasetError(RunnerError):
    """Raised when a bundle's dataset is of no use: empty, or not the same in every worker."""

    code = "dataset"
    fault = "bundle"


class RemoteError(RunnerError):
    """Raised when code of the bundle raised in the worker; carries text only, never an object of the worker's choosing.

    Args:
        message: What was being done and the worker's error text.
        remote_type: Qualified name of the exception type in the worker.
        remote_message: Its text, bounded.
        remote_traceback: Its formatted traceback, bounded; empty when there was none.
    """

    code = "remote"
    fault = "bundle"

    def __init__(
        self,
        message: str,
        *,
        remote_type: str = "",
        remote_message: str = "",
        remote_traceback: str = "",
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message, hint=hint, detail=detail or remote_traceback)
        self.remote_type = remote_type
        self.remote_message = remote_message
        self.remote_traceback = remote_traceback


class ProvisionError(RunnerError):
    """Raised when no virtual environment could be made for a bundle; the subclasses say why."""

    code = "provision"


class InterpreterNotFoundError(ProvisionError):
    """Raised when no installed CPython of the bundle's series was found; the text lists where was looked."""

    code = "interpreter-not-found"


class IncompatibleBundleError(ProvisionError):
    """Raised when the bundle was made for a benchmax series that this installation cannot run."""

    code = "incompatible-bundle"


class RequirementError(ProvisionError):
    """Raised when the bundle's requirements cannot be met: unknown package, no such version, or a conflict."""

    code = "requirement"
    fault = "bundle"


class BuildError(ProvisionError):
    """Raised when a source distribution among the requirements could not be built."""

    code = "build"
    fault = "bundle"


class IndexUnreachableError(ProvisionError):
    """Raised when the package index does not answer and the cache does not hold what is needed."""

    code = "index-unreachable"


class InstallTimeoutError(ProvisionError):
    """Raised when an installation ran out of time; the text names the phase and the installer's last line."""

    code = "install-timeout"


class CacheError(ProvisionError):
    """Raised when the cache of virtual environments cannot be used: unwritable, or the disk is full."""

    code = "cache"


class SandboxUnavailableError(RunnerError):
    """Raised when the sandbox level that was asked for cannot be had on this machine."""

    code = "sandbox-unavailable"


class FrameError(RunnerError):
    """Raised when bytes on a channel are not a valid frame or message.

    Args:
        message: What was expected and what came.
        unfinished: The stream ended inside a frame; a process that dies while it writes leaves that behind, too.
    """

    code = "frame"

    def __init__(self, message: str, *, unfinished: bool = False, hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.unfinished = unfinished


class WorkerError(RunnerError):
    """Raised when a worker process did not do its part; the subclasses say when."""

    code = "worker"


class WorkerStartError(WorkerError):
    """Raised when a worker ended, or ran out of time, before it was ready."""

    code = "worker-start"
    fault = "bundle"


class WorkerLostError(WorkerError):
    """Raised when a worker died, hung or lied while a call that has no outcome of its own was waiting for it."""

    code = "worker-lost"
    fault = "bundle"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEnd:
    """How one worker ended, or failed to start.

    Args:
        pid: Its process id on the host; 0 when there never was a process.
        ready: Whether it had become ready before.
        code: Code of the error that it was for whoever waited: `worker-lost`, `worker-start` or `remote`.
        exit: How its process ended, such as `exit code 3` or `SIGSEGV (-11)`; empty when there never was one.
        text: What happened, in one line.
        output: The last lines it wrote.
        stack: Where it was, as far as that is known.
    """

    pid: int
    ready: bool
    code: str
    exit: str
    text: str
    output: tuple[str, ...] = ()
    stack: str = ""


class RestartsUsedUpError(WorkerLostError):
    """Raised when workers ended, or failed to start, one after the other more often than `Limits.restarts` allows.

    Args:
        message: How many there were, and how they ended.
        history: How each of them ended, oldest first.
    """

    code = "restarts-used-up"

    def __init__(self, message: str, *, history: Sequence[WorkerEnd] = (), hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.history = tuple(history)


class HeadersRefusedError(RunnerError):
    """Raised when the broker refuses headers for a model request; the text names the argument that would allow it."""

    code = "headers-refused"


class HeaderLimitError(HeadersRefusedError):
    """Raised when a rollout or a worker asks for headers more often than it may; the text names the limit."""

    code = "header-limit"


class CredentialSourceError(HeadersRefusedError):
    """Raised when the caller's credential source raised, took too long, or gave what no request can carry."""

    code = "credential-source"


class EndpointError(RunnerError):
    """Raised when the model endpoint does not answer at the first probe."""

    code = "endpoint"


class ServiceError(RunnerError):
    """Raised when the validation service cannot do what it was asked; the subclasses say why."""

    code = "service"


class DatabaseError(ServiceError):
    """Raised when the database cannot be used: unreachable, of another release, or open on another host."""

    code = "database"


class QuotaError(ServiceError):
    """Raised when a key has used up one of its quotas.

    Args:
        message: What was asked for, and what the key may have.
        which: The quota: `bytes` or `jobs`.
        limit: What the key may have of it.
    """

    code = "quota"
    fault = "usage"

    def __init__(self, message: str, *, which: str = "", limit: int = 0, hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.which = which
        self.limit = limit


class LeaseLostError(ServiceError):
    """Raised when an executor writes to a job that is no longer its own."""

    code = "lease-lost"


class ConflictError(ServiceError):
    """Raised when something is not in the state that a change of it needs, such as a job that is still running."""

    code = "conflict"
    fault = "usage"


class ClientError(ServiceError):
    """Raised when a service does not do what its client asks; the subclasses say who has to act.

    Args:
        message: What failed and the fact behind it, in one line.
        status: The answer's HTTP status; 0 where there was no answer.
        answer_code: The service's own code of the error, which is stable; empty where it gave none.
        request_id: Under which whoever runs the service finds the request in its logs.
        hint: What to do next.
        detail: Further lines.
    """

    code = "client"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        answer_code: str = "",
        request_id: str = "",
        hint: str = "",
        detail: str = "",
    ) -> None:
        super().__init__(message, hint=hint, detail=detail)
        self.status = status
        self.answer_code = answer_code
        self.request_id = request_id

    @property
    def passing(self) -> bool:
        """Whether it says nothing about the request, which may be answered in a moment."""
        return self.status in (0, 429, 502, 503, 504) or self.answer_code == "in-progress"


class ServiceUnreachableError(ClientError):
    """Raised when there is no answer: no connection, or none in time, as often as it was tried."""

    code = "service-unreachable"


class ServiceFaultError(ClientError):
    """Raised when the service says that something is wrong with itself, or answers what no service of ours does."""

    code = "service-fault"


class ServiceBusyError(ClientError):
    """Raised when a quota or a rate is used up, and waiting for it takes longer than a client should."""

    code = "service-busy"


class ServiceRefusedError(ClientError):
    """Raised when the service refuses a request as it stands."""

    code = "service-refused"
    fault = "usage"


class KeyRefusedError(ServiceRefusedError):
    """Raised when the key is not known, no longer good, or may not do this."""

    code = "key-refused"


class NotFoundError(ServiceRefusedError):
    """Raised when there is no such thing, or none of the key's tenant."""

    code = "not-found"
