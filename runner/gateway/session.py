"""Sessions: what one rollout, or one binding, may ask of which model, with a key of its own.

A key is good for one session, from when it is opened until it is over. What was asked and answered is kept, bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from runner.broker.address import Address, address_or_none, read_address
from runner.gateway.budget import Account, Budget
from runner.gateway.exchange import CallTrace, ModelCall, Upstream, Usage
from runner.gateway.faults import RefusedError
from runner.gateway.findings import Finding
from runner.limits import ENDED_SESSIONS, MAX_SESSION_ID_CHARS, TRACE_OVERHEAD_BYTES

CHAT: Final = "chat/completions"
EMBEDDINGS: Final = "embeddings"
MODELS: Final = "models"

_ID: Final = re.compile(rf"(?!\.+$)[A-Za-z0-9._-]{{1,{MAX_SESSION_ID_CHARS}}}")
_KEY_BYTES: Final = 32
_DIGEST_CHARS: Final = 32
END_S: Final = 1.0
"""How long a call in flight may take to tell its client that the session is over, before the connection is cut."""


class Running(Protocol):
    """A call in flight, as its session knows it."""

    @property
    def task(self) -> asyncio.Task[Any]:
        """What works on it."""

    def abort(self) -> None:
        """Cut the client's connection."""


class Contract(Protocol):
    """Watches the chat requests of a session; see `SessionContract`."""

    def began(self, number: int, document: object) -> None:
        """A request has arrived."""

    def answered(self, number: int, message: object) -> None:
        """The model has answered; the client does not have the last of it yet."""

    def ended(self, number: int) -> None:
        """A call is over."""

    @property
    def errors(self) -> list[dict[str, str]]:
        """Findings that are errors."""

    @property
    def warnings(self) -> list[dict[str, str]]:
        """Findings that are warnings."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Both, with the call and the place of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What became of a session.

    Args:
        num_calls: Calls that were sent on, but for lists of models.
        contract_errors: Findings about its requests: `code`, `message` and mostly `field`.
        contract_warnings: The same of lesser weight.
        findings: Both, with the call and the place of each.
        usage: Tokens of all calls together.
        traces: The calls, in the order in which they ended. Their `document` is left out, as the body has it. When they
            are too much, the oldest are left without bodies and headers, or left out.
        omitted_traces: How many are left out.
    """

    num_calls: int
    contract_errors: tuple[dict[str, str], ...]
    contract_warnings: tuple[dict[str, str], ...]
    usage: Usage
    traces: tuple[CallTrace, ...]
    omitted_traces: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Shelf:
    """What all sessions of one gateway keep of their calls.

    Args:
        most: Bytes, beyond which each session keeps little more than its newest call.
        held: Bytes so far.
    """

    most: int
    held: int = 0

    @property
    def is_full(self) -> bool:
        """Whether there are more than are meant to be."""
        return self.held > self.most


class Session:
    """One session; made by `Gateway.open`. All arguments are as described there."""

    def __init__(
        self,
        session_id: str,
        upstream: Upstream,
        *,
        rollout_id: str,
        binding: str | None,
        model: str | None,
        budget: Budget,
        base_url: str | None,
        at: Iterable[str],
        trace_bytes: int,
        shelf: Shelf,
        contract: Contract | None,
        over: Callable[[Session], None],
    ) -> None:
        self.id = session_id
        self.key = secrets.token_urlsafe(_KEY_BYTES)
        self.upstream = upstream
        self.rollout_id = rollout_id
        self.binding = binding
        self.model = model
        self.budget = budget
        self.base_url = base_url
        self.contract = contract
        places = tuple(at)
        self._paths = frozenset(place for place in places if place.startswith("/"))
        self._addresses = tuple(read_address(place) for place in places if not place.startswith("/"))
        self._account = Account(budget)
        self._traces: deque[CallTrace] = deque()
        self._trace_bytes = trace_bytes
        self._shelf = shelf
        self._kept_bytes = 0
        self._bare = 0
        self._omitted = 0
        self._number = 0
        self._running: dict[Running, None] = {}
        self._over = over
        self._is_over = False

    @property
    def path(self) -> str:
        """Path of its base URL."""
        return session_path(self.id)

    @property
    def num_calls(self) -> int:
        """Calls that were sent on so far, but for lists of models."""
        return self._account.calls

    @property
    def usage(self) -> Usage:
        """Tokens of all calls so far."""
        return self._account.usage

    @property
    def is_over(self) -> bool:
        """Whether its key is good for nothing any more."""
        return self._is_over

    @property
    def busy(self) -> bool:
        """Whether calls are in flight."""
        return bool(self._running)

    def covers_path(self, path: str) -> bool:
        """Whether its key is good at the base URL of another session."""
        return path in self._paths

    def below(self, url: str) -> str | None:
        """Return what of a URL is below an address at which the key is good; `None` where it is not."""
        asked = address_or_none(url)
        if asked is None:
            return None
        covering: list[Address] = [address for address in self._addresses if address.covers(asked)]
        if not covering:
            return None
        return asked.path[max(len(address.path) for address in covering) :].lstrip("/")

    def number(self) -> int:
        """Take the next call's number."""
        self._number += 1
        return self._number - 1

    def admit(self, call: ModelCall) -> dict[str, int]:
        """Count a call in; return what of it to lower.

        Raises:
            RefusedError: it is for another model, or beyond the budget.
        """
        document: Mapping[str, Any] | None = call.document if isinstance(call.document, dict) else None
        if call.method == "GET" and is_models(call.route):
            return {}
        if self.model is not None and (document or {}).get("model") != self.model:
            raise RefusedError(f"this session is for the model {self.model!r}.", param="model")
        return self._account.check(document, chat=is_chat(call.route))

    @contextlib.contextmanager
    def running(self, call: Running) -> Iterator[None]:
        """Know a call as long as it is in flight."""
        self._running[call] = None
        try:
            yield
        finally:
            del self._running[call]

    def spend(self, call: ModelCall, usage: Usage) -> None:
        """Count the tokens of a call that was answered."""
        self._account.add(usage, chat=is_chat(call.route))

    def keep(self, trace: CallTrace) -> None:
        """Keep what became of a call; when that is too much, what is oldest goes: bodies and headers first."""
        self._traces.append(replace(trace, call=replace(trace.call, document=None)))
        self._hold(_size(trace))
        while (self._kept_bytes > self._trace_bytes or self._shelf.is_full) and len(self._traces) > 1:
            if self._bare < len(self._traces) - 1:
                old = self._traces[self._bare]
                bare = replace(
                    old,
                    call=replace(old.call, body=b"", headers={}),
                    answer=b"",
                    omitted_bytes=old.omitted_bytes + len(old.call.body) + len(old.answer),
                )
                self._traces[self._bare] = bare
                self._bare += 1
                self._hold(_size(bare) - _size(old))
            else:
                self._hold(-_size(self._traces.popleft()))
                self._bare -= 1
                self._omitted += 1

    def _hold(self, count: int) -> None:
        self._kept_bytes += count
        if not self._is_over:
            self._shelf.held += count

    async def collect(self) -> Collected:
        """End it, and return what became of it; twice gives the same."""
        await self.close()
        contract = self.contract
        return Collected(
            num_calls=self.num_calls,
            contract_errors=tuple(contract.errors) if contract is not None else (),
            contract_warnings=tuple(contract.warnings) if contract is not None else (),
            findings=contract.findings if contract is not None else (),
            usage=self.usage,
            traces=tuple(self._traces),
            omitted_traces=self._omitted,
        )

    async def close(self) -> None:
        """Revoke the key, and end the calls in flight: their clients are told so."""
        self.revoke()
        mine = asyncio.current_task()
        waiting = {call.task: call for call in self._running if call.task is not mine}
        if not waiting:
            return
        for task in waiting:
            task.cancel()
        _, slow = await asyncio.wait(waiting, timeout=END_S)
        for task in slow:
            # its client does not take what it is told
            waiting[task].abort()
        if slow:
            await asyncio.wait(slow)

    def revoke(self) -> None:
        """Let the key be good for nothing from now on."""
        if not self._is_over:
            self._is_over = True
            # from now on whoever collects it holds it
            self._shelf.held -= self._kept_bytes
            self._over(self)


class Sessions:
    """All sessions of one gateway, by id and by key."""

    def __init__(self) -> None:
        self._by_id: dict[str, Session] = {}
        self._by_digest: dict[bytes, Session] = {}
        self._ended: OrderedDict[bytes, None] = OrderedDict()

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._by_id.values()])

    def free_id(self, rollout_id: str) -> str:
        """Return an id for a rollout's session: its own where that can stand in a URL, made unlike all others."""
        plain = rollout_id
        if not valid_id(rollout_id):
            plain = hashlib.sha256(rollout_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        found, count = plain, 1
        while found in self._by_id:
            count += 1
            suffix = f"-{count}"
            found = plain[: MAX_SESSION_ID_CHARS - len(suffix)] + suffix
        return found

    def add(self, session: Session) -> None:
        """Take a new session in.

        Raises:
            ValueError: its id cannot stand in a URL, or is taken.
        """
        if not valid_id(session.id):
            raise ValueError(f"a session's id must be 1 to {MAX_SESSION_ID_CHARS} of A-Z a-z 0-9 . _ -")
        if session.id in self._by_id:
            raise ValueError(f"there is a session {session.id!r} already")
        self._by_id[session.id] = session
        self._by_digest[_digest(session.key)] = session

    def remove(self, session: Session) -> None:
        """Forget a session that is over, but for its key."""
        self._by_id.pop(session.id, None)
        digest = _digest(session.key)
        self._by_digest.pop(digest, None)
        self._ended[digest] = None
        if len(self._ended) > ENDED_SESSIONS:
            self._ended.popitem(last=False)

    def at(self, session_id: str) -> Session | None:
        """Return the session of an id."""
        return self._by_id.get(session_id)

    def of_key(self, key: str) -> Session:
        """Return the session that a key is for.

        Raises:
            RefusedError: there is none, or none any more.
        """
        # by digest, so that how long the search takes says nothing about any key
        digest = _digest(key)
        session = self._by_digest.get(digest)
        if session is not None and hmac.compare_digest(session.key.encode(), key.encode("utf-8", "replace")):
            return session
        if digest in self._ended:
            raise over_error()
        raise key_error("no session has it. A rollout's is in the headers that its request's model_auth gives.")


def is_chat(route: str) -> bool:
    """Whether a route is that of chat completions, at whatever depth an API has it."""
    return route == CHAT or route.endswith(f"/{CHAT}")


def is_known(route: str) -> bool:
    """Whether what a route answers is known to be a JSON object."""
    return is_chat(route) or is_models(route) or route == EMBEDDINGS or route.endswith(f"/{EMBEDDINGS}")


def is_models(route: str) -> bool:
    """Whether a route is that of the list of models."""
    return route == MODELS or route.endswith(f"/{MODELS}")


def session_path(session_id: str) -> str:
    """Return the path of a session's base URL."""
    return f"/sessions/{session_id}/v1"


def valid_id(text: str) -> bool:
    """Whether a text can be a session's id."""
    return _ID.fullmatch(text) is not None


def key_error(fact: str) -> RefusedError:
    """Return the answer to a key that is not good here."""
    return RefusedError(f"the session key is not accepted: {fact}", code="invalid_session_key", status=401)


def over_error() -> RefusedError:
    """Return the answer to a key whose session is over."""
    return RefusedError(
        "the session of this key is over; nothing can be asked with it any more.", code="session_over", status=401
    )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _size(trace: CallTrace) -> int:
    headers = sum(len(name) + len(value) for name, value in trace.call.headers.items())
    return TRACE_OVERHEAD_BYTES + headers + len(trace.call.body) + len(trace.answer)
