"""A model server that holds each conversation against a session's contract, as the gateway does.

The first segment of a request's path is its session: `http://127.0.0.1:PORT/<session>/v1`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from runner.gateway.assembler import answer_message
from runner.gateway.diagnostics import SessionContract
from runner.models.answer import Completion, answer
from runner.models.chat import decode_chat_request
from runner.models.sample import SAMPLE_HEADER, header_sample
from runner.models.script import Script, load_script
from runner.models.wire import completion_body, completion_events
from tests.contract.loopback import ModelServer, Received, Reply, error, running_server


class JudgingServer:
    """Answers by a script, and keeps a contract for each session."""

    def __init__(self, server: ModelServer, script: Script) -> None:
        self.contracts: dict[str, SessionContract] = defaultdict(SessionContract)
        self._server = server
        self._script = script
        self._numbers = count()
        server.answer = self._answer

    def url(self, session: str) -> str:
        return self._server.url.removesuffix("/v1") + f"/{session}/v1"

    def _answer(self, received: Received) -> Reply:
        number = next(self._numbers)
        contract = self.contracts[received.target.split("/")[1]]
        contract.began(number, received.body)
        chat = decode_chat_request(received.body)
        sample = header_sample(received.headers.get(SAMPLE_HEADER.lower())) or 0
        action = answer(self._script, chat, sample).action
        reply = error(503, "overloaded")
        if isinstance(action, Completion):
            whole = completion_body(f"{number}", chat.model, [action])
            contract.answered(number, answer_message(whole))
            reply = Reply(whole)
            if chat.stream:
                events = b"".join(completion_events(f"{number}", chat.model, [action], include_usage=True))
                reply = Reply(events, content_type="text/event-stream")
        contract.ended(number)
        return reply


@contextmanager
def judging(script: Path | None = None) -> Iterator[JudgingServer]:
    with running_server() as server:
        yield JudgingServer(server, Script() if script is None else load_script(script))
