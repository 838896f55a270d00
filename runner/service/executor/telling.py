"""What happens in a run or a validation, as events of its job and as text to keep."""

from __future__ import annotations

from typing import Any, Final

from runner.record import Event, LogLine, OutputEvent, PhaseEvent, RecordEvent, RolloutRecord, StallEvent, WorkerEvent
from runner.service.executor.outbox import MAX_TEXT_CHARS, OUTPUT, Outbox, note
from runner.text import bounded, printable

CUT: Final = "… the rest of the output is left out\n"


class Log:
    """Keeps what was put out, for people.

    Args:
        most: Characters that are kept.
    """

    def __init__(self, most: int) -> None:
        self._room = most
        self._pieces: list[str] = []

    def add(self, who: str, text: str) -> None:
        """Keep some output.

        Args:
            who: Whose: a rollout's id, or what it was of.
            text: The output, of any number of lines.
        """
        if self._room <= 0:
            return
        piece = "".join(f"{who}: {line}\n" for line in printable(text).splitlines())
        if len(piece) > self._room:
            piece = piece[: self._room].rpartition("\n")[0] + "\n" + CUT
            self._room = 0
        self._room -= len(piece)
        self._pieces.append(piece)

    def to_bytes(self) -> bytes:
        """Return all of it."""
        return "".join(self._pieces).encode("utf-8", "backslashreplace")


class Teller:
    """Tells events to an outbox, and keeps output.

    Args:
        outbox: Takes events.
        log: Keeps output.
    """

    def __init__(self, outbox: Outbox, log: Log) -> None:
        self._outbox = outbox
        self._log = log

    def on_event(self, event: Event) -> None:
        """Tell one event."""
        match event:
            case PhaseEvent():
                self._outbox.put("phase", {"phase": event.phase, "text": event.message})
                self._log.add("phase", event.message)
            case OutputEvent():
                self._say(None, event.line)
            case RecordEvent():
                self.output_of(event.record)
            case WorkerEvent(state="ended"):
                self._note(f"worker ended: {event.message}")
            case StallEvent():
                state = "turns again" if event.over else f"has not turned for {event.seconds:.1f} s"
                self._note(f"the event loop of a worker {state}: {event.where}")
            case _:
                # of no interest to whoever waits for a verdict
                return

    def output_of(self, record: RolloutRecord) -> None:
        """Tell what a rollout put out."""
        for line in record.logs:
            self._say(record.rollout_id, line)

    def _note(self, text: str) -> None:
        self._outbox.put(OUTPUT, note(bounded(printable(text), MAX_TEXT_CHARS)))
        self._log.add("runner", text)

    def _say(self, rollout_id: str | None, line: LogLine) -> None:
        text = bounded(printable(line.text), MAX_TEXT_CHARS)
        body: dict[str, Any] = {"stream": line.stream, "level": line.level, "logger": line.logger, "text": text}
        if rollout_id is not None:
            body["rollout_id"] = rollout_id
        self._outbox.put(OUTPUT, body)
        self._log.add(rollout_id or "worker", line.text)
