"""The log: one JSON object per line, without a secret.

Of a request it has neither query, which may be a signature, nor headers, nor body. What else is written, tracebacks
above all, is cleaned of the secrets that the service knows and of whatever looks like a key.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import time
import traceback
from typing import Final, TextIO

from runner.redaction import Redactor
from runner.service.http.exchange import Exchange

NAME: Final = "benchmax.service"

_KEY: Final = re.compile(r"\bbmx_[A-Za-z0-9_]+|(?<=[?&])signature=[^&\s\"']+")
_TRACEBACK_CHARS: Final = 16_000


class RequestLog:
    """Writes what the server has to tell.

    Args:
        redactor: Knows the service's own secrets.
        logger: Where to.
    """

    def __init__(self, redactor: Redactor, logger: logging.Logger | None = None) -> None:
        self._redactor = redactor
        self._logger = logger or logging.getLogger(NAME)

    def answered(self, exchange: Exchange, *, quiet: bool = False) -> None:
        """Tell of a request that is over."""
        level = logging.DEBUG if quiet else logging.INFO if exchange.status < 500 else logging.ERROR
        self.tell(
            level,
            "request",
            request_id=exchange.id,
            method=exchange.method,
            path=exchange.path,
            status=exchange.status,
            code=exchange.code,
            seconds=round(time.monotonic() - exchange.began, 4),
            address=exchange.address,
            key=exchange.key_id or "",
            tenant=exchange.tenant_id or "",
            aborted=exchange.aborted,
        )

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """Tell of a mistake of the service's own."""
        text = "".join(traceback.format_exception(error))
        self.tell(logging.ERROR, "failure", request_id=exchange.id, path=exchange.path, traceback=text)

    def tell(self, level: int, event: str, **facts: object) -> None:
        """Write one line.

        Args:
            level: As `logging` has it.
            event: What happened, in a word.
            facts: More of it; empty texts and `False` are left out.
        """
        if not self._logger.isEnabledFor(level):
            return
        known = {name: self._clean(value) for name, value in facts.items() if value not in ("", False)}
        self._logger.log(level, event, extra={"facts": known})

    def _clean(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        return _KEY.sub("[redacted]", self._redactor.clean(value))[-_TRACEBACK_CHARS:]


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        at = dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"at": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line.update(getattr(record, "facts", {}))
        if record.exc_info:
            line["traceback"] = _KEY.sub("[redacted]", self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def log_to(stream: TextIO, *, level: int = logging.INFO) -> logging.Handler:
    """Have the service's log written as lines of JSON; return the handler, to be taken away again."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(NAME)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler
