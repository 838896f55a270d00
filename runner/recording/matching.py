"""Finds the recorded call that a request of a replay is, or says how it differs from what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from runner.gateway.exchange import ModelCall
from runner.gateway.json_text import read_json
from runner.recording.comparing import Difference, first_difference
from runner.recording.folder import RecordFolder
from runner.recording.journal import Lines, Place
from runner.recording.traffic import Clean, RecordedCall, address_of

GROUP: Final = "group "
"""What stands before the id of a group's first rollout in the name of calls that are the group's as a whole."""


class Key(NamedTuple):
    """Whose calls they are: a rollout's, under a binding or (`None`) to its own model."""

    rollout_id: str
    binding: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A recorded call, as far as it is known without reading it: its number, and where it stands."""

    number: int
    place: Place


class Mismatch(NamedTuple):
    """What a request was compared with, and where it differs from that."""

    number: int
    difference: Difference


def listed_calls(lines: Lines[RecordedCall], attempts: Mapping[str, int]) -> dict[Key, list[Listed]]:
    """Go through recorded calls; return those that count, by whose they are, each in the order of their numbers.

    Args:
        lines: The journal.
        attempts: By rollout, the attempt whose calls count: the one that its outcome is of. The calls of a group go by
            its first rollout; what is neither, such as the making of a dataset, has the calls of all attempts.

    Raises:
        UsageError: the journal cannot be read.
    """
    found: dict[Key, list[Listed]] = {}
    for place, call in lines.placed():
        if attempts.get(call.rollout_id.removeprefix(GROUP), call.attempt) == call.attempt:
            found.setdefault(Key(call.rollout_id, call.binding), []).append(Listed(call.number, place))
    for calls in found.values():
        calls.sort(key=lambda listed: listed.number)
    return found


def last_attempts(folder: RecordFolder) -> dict[str, int]:
    """Return, by rollout, the attempt that its last outcome is of.

    Raises:
        UsageError: the outcomes cannot be read.
    """
    return {line.outcome.rollout_id: line.attempt for line in folder.outcomes}


class RecordedCalls:
    """The recorded calls of one key, each of which answers one request.

    Args:
        calls: Where they are, in order.
        lines: The journal.
        clean: Takes secrets out of text; what was recorded has none.
    """

    def __init__(self, calls: Sequence[Listed], lines: Lines[RecordedCall], clean: Clean) -> None:
        self._unused = list(calls)
        self._lines = lines
        self._clean = clean

    @property
    def unused(self) -> int:
        """Calls that no request has been answered with."""
        return len(self._unused)

    def take(self, call: ModelCall, base_url: str) -> RecordedCall | Mismatch | None:
        """Return the recorded call that a request is; `None` when all have been used.

        It is the first one that asked the same: calls that were made at the same time may come in another order, and
        what is asked several times is answered in the order in which it was. One that does not fit stays unused.

        Args:
            call: The request.
            base_url: The model's.

        Raises:
            UsageError: the journal cannot be read.
        """
        wanted = Request.of(call, base_url, self._clean)
        nearest: Mismatch | None = None
        for listed in self._unused:
            recorded = self._lines.at(listed.place)
            difference = Request.recorded(recorded).difference(wanted)
            if difference is None:
                self._unused.remove(listed)
                return recorded
            if nearest is None or listed.number == call.number:
                nearest = Mismatch(listed.number, difference)
        return nearest


@dataclass(frozen=True, slots=True)
class Request:
    """What of a request is compared: where it goes, and its body, as JSON where it is some."""

    address: str
    document: object

    @classmethod
    def of(cls, call: ModelCall, base_url: str, clean: Clean) -> Request:
        """Take it from a call, without its secrets."""
        address = call.route if call.url is None else address_of(call.url, base_url)
        return cls._read(call.method, clean(address), call.body, clean)

    @classmethod
    def recorded(cls, call: RecordedCall) -> Request:
        """Take it from the record."""
        return cls._read(call.method, call.url or call.route, bytes(call.request), None)

    @classmethod
    def _read(cls, method: str, where: str, body: bytes, clean: Callable[[str], str] | None) -> Request:
        text = body.decode("utf-8", "surrogateescape")
        text = text if clean is None else clean(text)
        document: object
        try:
            document = read_json(text.encode("utf-8", "surrogateescape")) if text else None
        except ValueError:
            document = text
        return cls(f"{method} {where}", document)

    def difference(self, now: Request) -> Difference | None:
        """Say where another request differs from this one; `None` when it does not."""
        if self.address != now.address:
            return first_difference(self.address, now.address, path="address")
        return first_difference(self.document, now.document)
