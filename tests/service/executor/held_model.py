"""A model's server that says when it is asked, and answers when it is let."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HeldModel:
    """See the module.

    Args:
        port: Where it is.
    """

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.asked = threading.Event()
        """Set when a completion is asked for."""
        self.let = threading.Event()
        """Lets it answer, now and from now on."""

    def hold(self) -> None:
        """Be as at first."""
        self.asked.clear()
        self.let.clear()


@contextmanager
def held_model() -> Iterator[HeldModel]:
    """Have such a server for the length of the context."""
    model: HeldModel

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer({"object": "list", "data": []})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            model.asked.set()
            model.let.wait()
            message = {"role": "assistant", "content": "42"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
            self._answer({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage, "model": "m"})

        def _answer(self, body: object) -> None:
            data = json.dumps(body).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:
                # whoever asked was ended
                self.close_connection = True

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model = HeldModel(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield model
    finally:
        model.let.set()
        server.shutdown()
        thread.join()
        server.server_close()
