"""Credentials of sandbox providers, and how they get to Harbor: as variables of this process, for a while.

Harbor's clients read the process environment, which is one for all. So whoever needs the same variables shares them,
and whoever needs others waits until they are gone.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

__all__ = [
    "CustomSandboxCredentials",
    "DaytonaCredentials",
    "ModalCredentials",
    "SandboxCredentials",
    "sandbox_credentials_scope",
]


@runtime_checkable
class SandboxCredentials(Protocol):
    """Whatever can produce the variables that a sandbox provider's client reads."""

    @property
    def provider(self) -> str | None:
        """Harbor's name of the provider they are for; `None` fits every provider."""
        ...

    def host_environment(self) -> Mapping[str, str]:
        """Return the variables to set in this process while trials run."""
        ...


def _require_secret(owner: str, name: str, value: object) -> None:
    # the value stays out of the message
    if not isinstance(value, str) or not value:
        raise ValueError(f"{owner}.{name} must be a non-empty string.")


@dataclass(frozen=True, slots=True)
class ModalCredentials:
    """A token of Modal. `repr` shows no secrets; a pickle holds them.

    Args:
        token_id: The token's id.
        token_secret: The token's secret.
        max_throttle_wait_seconds: How long Modal's client waits when it is throttled, in whole seconds from 0.

    Raises:
        ValueError: a token part is empty, or the wait is not a non-negative integer.
    """

    provider: str = field(init=False, default="modal")
    token_id: str = field(repr=False)
    token_secret: str = field(repr=False)
    max_throttle_wait_seconds: int = 60

    def __post_init__(self) -> None:
        _require_secret("ModalCredentials", "token_id", self.token_id)
        _require_secret("ModalCredentials", "token_secret", self.token_secret)
        wait: object = self.max_throttle_wait_seconds
        if isinstance(wait, bool) or not isinstance(wait, int) or wait < 0:
            raise ValueError(
                f"ModalCredentials.max_throttle_wait_seconds must be a non-negative integer, got {wait!r}."
            )

    def host_environment(self) -> Mapping[str, str]:
        """Return what Modal's client reads."""
        return {
            "MODAL_TOKEN_ID": self.token_id,
            "MODAL_TOKEN_SECRET": self.token_secret,
            "MODAL_MAX_THROTTLE_WAIT": str(self.max_throttle_wait_seconds),
        }


@dataclass(frozen=True, slots=True)
class DaytonaCredentials:
    """A key of Daytona, or a JWT and the organization it acts for. `repr` shows no secrets; a pickle holds them.

    Args:
        api_key: The key; nothing of the next two then.
        jwt_token: The JWT.
        organization_id: The organization, with a JWT only.
        target: Where sandboxes run.

    Raises:
        ValueError: it is neither a key alone nor a JWT with an organization, or a text is empty.
    """

    provider: str = field(init=False, default="daytona")
    api_key: str | None = field(default=None, repr=False)
    jwt_token: str | None = field(default=None, repr=False)
    organization_id: str | None = field(default=None, repr=False)
    target: str | None = None

    def __post_init__(self) -> None:
        has_key = self.api_key is not None
        has_jwt = self.jwt_token is not None
        if has_key == has_jwt or has_jwt != (self.organization_id is not None):
            raise ValueError(
                "DaytonaCredentials needs exactly one of api_key alone, or jwt_token together with organization_id."
            )
        for name in ("api_key", "jwt_token", "organization_id", "target"):
            if (value := getattr(self, name)) is not None:
                _require_secret("DaytonaCredentials", name, value)

    def host_environment(self) -> Mapping[str, str]:
        """Return what Daytona's client reads; what is not given is left out."""
        given = {
            "DAYTONA_API_KEY": self.api_key,
            "DAYTONA_JWT_TOKEN": self.jwt_token,
            "DAYTONA_ORGANIZATION_ID": self.organization_id,
            "DAYTONA_TARGET": self.target,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CustomSandboxCredentials:
    """Variables for any other provider, or for a sandbox of one's own. `repr` shows no values; a pickle holds them.

    Args:
        values: The variables by name; copied.
        provider: Harbor's name of the provider they are for; `None` fits every provider.

    Raises:
        TypeError: `values` is not a mapping.
        ValueError: it is empty, a name or value is not a non-empty string, or the provider is blank.
    """

    values: Mapping[str, str] = field(repr=False)
    provider: str | None = None

    def __post_init__(self) -> None:
        given: object = self.values
        if not isinstance(given, Mapping):
            raise TypeError(f"CustomSandboxCredentials.values must be a mapping, got {type(given).__name__}.")
        if not given:
            raise ValueError("CustomSandboxCredentials.values must hold at least one variable.")
        for name, value in given.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"CustomSandboxCredentials.values must have non-empty strings as names, got {name!r}.")
            _require_secret("CustomSandboxCredentials", f"values[{name!r}]", value)
        provider: object = self.provider
        if provider is not None and (not isinstance(provider, str) or not provider.strip()):
            raise ValueError(f"CustomSandboxCredentials.provider must be None or a non-blank string, got {provider!r}.")
        object.__setattr__(self, "values", dict(given))

    def host_environment(self) -> Mapping[str, str]:
        """Return a copy of the variables."""
        return dict(self.values)


@dataclass(slots=True)
class _Lease:
    """One use of credentials, known to the context it was made in and to those copied from it."""

    credentials: SandboxCredentials
    environment: dict[str, str] = field(repr=False)
    over: bool = False


_CURRENT_LEASE: ContextVar[_Lease | None] = ContextVar("benchmax_sandbox_credentials", default=None)


class _ProcessEnvironment:
    """Hands out the process environment to all who want the same in it. Works across event loops and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._wanted: dict[str, str] = {}
        self._previous: dict[str, str | None] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    async def enter(self, wanted: dict[str, str]) -> None:
        """Set the variables, or join those who have set the same; wait while others are set."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                if self._users == 0:
                    self._set(wanted)
                if self._wanted == wanted:
                    self._users += 1
                    return
                freed = loop.create_future()
                self._waiting.append((loop, freed))
            await freed

    def leave(self) -> None:
        """Give up one use; the last one puts back what was there."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._restore()
            waiting, self._waiting = self._waiting, []
        for loop, freed in waiting:
            # one whose loop has ended in the meantime waits no more
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, freed)

    def _set(self, wanted: dict[str, str]) -> None:
        self._wanted = wanted
        self._previous = {name: os.environ.get(name) for name in wanted}
        try:
            os.environ.update(wanted)
        except BaseException:
            self._restore()
            raise

    def _restore(self) -> None:
        for name, value in self._previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._wanted, self._previous = {}, {}


def _wake(freed: asyncio.Future[None]) -> None:
    if not freed.done():
        freed.set_result(None)


_environment = _ProcessEnvironment()


@asynccontextmanager
async def sandbox_credentials_scope(credentials: SandboxCredentials | None) -> AsyncIterator[None]:
    """Keep the variables of `credentials` in `os.environ` inside the `async with` block.

    Scopes with equal variables share them; one with others waits until nobody uses those that are set. The last one to
    leave puts back what was there before. Entering again with the same object, in the same context or in one copied
    from it, changes nothing.

    Args:
        credentials: Whose variables; `None` changes nothing.

    Raises:
        RuntimeError: another object's scope is open in this context; it would wait for itself.
    """
    if credentials is None:
        yield
        return
    outer = _CURRENT_LEASE.get()
    if outer is not None and not outer.over:
        if outer.credentials is not credentials:
            raise RuntimeError(
                "Scopes of different sandbox credentials cannot nest: leave the one before entering the other, "
                "or use the same object."
            )
        # a user more, so that a task which outlives the scope it was started in keeps its variables
        await _environment.enter(outer.environment)
        try:
            yield
        finally:
            _environment.leave()
        return
    lease = _Lease(credentials, dict(credentials.host_environment()))
    await _environment.enter(lease.environment)
    token = _CURRENT_LEASE.set(lease)
    try:
        yield
    finally:
        lease.over = True
        _CURRENT_LEASE.reset(token)
        _environment.leave()
