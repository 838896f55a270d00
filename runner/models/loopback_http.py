"""The HTTP side of a model's server on loopback: JSON in, JSON out, errors in OpenAI's shape, and the announcement.

Shared by the servers that run by path in a venv of their own; standard library alone, and nothing of `runner`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""One request: far above any model's context, so that a text that is too long gets its own error."""

JsonObject = dict[str, Any]


class RequestError(Exception):
    """Raised when a request cannot be answered; carries the fields of OpenAI's error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code


class JsonHandler(BaseHTTPRequestHandler):
    """One client's connection to a `LoopbackServer`; a subclass says what is served."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: LoopbackServer
    post_path = ""
    """The one path that takes requests."""

    def answer(self, request: JsonObject) -> None:
        """Answer one request, mostly by `send_json`.

        Raises:
            RequestError: it cannot be answered.
        """
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer `GET /v1/models`."""
        if self.path.rstrip("/") != "/v1/models":
            self.send_request_error(RequestError(404, f"There is no GET {self.path} here."))
            return
        entry = {"id": self.server.model_name, "object": "model", "created": 0, "owned_by": "benchmax"}
        self.send_json(200, json.dumps({"object": "list", "data": [entry]}).encode())

    def do_POST(self) -> None:
        """Answer a request to `post_path`."""
        try:
            body = self._body()
            if self.path != self.post_path:
                raise RequestError(404, f"There is no POST {self.path} here.")
            if not isinstance(body.get("model"), str) or not body["model"]:
                raise RequestError(400, "Missing required parameter: 'model'.", param="model")
            self.answer(body)
        except RequestError as exc:
            self.send_request_error(exc)

    def _body(self) -> JsonObject:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"\d{1,12}", length) or int(length) > MAX_BODY_BYTES:
            # what follows on this connection cannot be told from the body
            self.close_connection = True
            raise RequestError(413, f"A body needs a Content-Length of at most {MAX_BODY_BYTES} bytes.")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as exc:
            raise RequestError(400, f"The body of the request is not valid JSON: {exc}") from exc
        if not isinstance(body, dict):
            raise RequestError(400, "The body of the request must be a JSON object.")
        return body

    def send_request_error(self, error: RequestError) -> None:
        """Send an error in OpenAI's shape."""
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        fields = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
        self.send_json(error.status, json.dumps({"error": fields}).encode())

    def send_json(self, status: int, body: bytes) -> None:
        """Send a whole answer."""
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client has gone, and nobody is left to be told

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing per request."""


class LoopbackServer(ThreadingHTTPServer):
    """A server on 127.0.0.1 with one thread per connection.

    Args:
        handler: What answers.
        model_name: The model's name in answers.
        port: The port to listen on; 0 takes a free one.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, handler: type[JsonHandler], *, model_name: str, port: int) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.model_name = model_name

    def announce_and_serve(self, announce_fd: int) -> None:
        """Write the address line to a descriptor, close that, and serve for ever."""
        line = json.dumps({"base_url": f"http://127.0.0.1:{self.server_port}/v1", "model": self.model_name}) + "\n"
        with os.fdopen(announce_fd, "wb") as stream:
            stream.write(line.encode())
        self.serve_forever()


def end_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process at once: there is nothing to save."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)


def server_arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser of what every such program is started with."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, help="name of the model in answers")
    parser.add_argument("--announce-fd", type=int, required=True, help="descriptor for the address line")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    return parser
