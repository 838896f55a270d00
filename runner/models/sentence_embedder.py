"""all-MiniLM-L6-v2 on numpy: texts in, unit vectors out. Texts that mean similar things get near vectors.

Runs in the venv of the embeddings server, which has numpy and tokenizers; nothing of `runner` imports it. The model is
a BERT of six layers with mean pooling, and this computes the forward pass of exactly that architecture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

MAX_TOKENS: Final = 256
"""Longest text, in tokens; the rest is cut, as the model's own configuration says."""

BATCH: Final = 16
"""Texts computed at once: some 50 MB of intermediate values at the longest."""

Array = Any
"""A numpy array; its type would need numpy where this is only read."""


class SentenceEmbedder:
    """The model, loaded.

    Args:
        folder: A sentence-transformers folder with `config.json`, `tokenizer.json` and `model.safetensors`.

    Raises:
        OSError: a file is missing.
        ValueError: the folder holds another architecture.
    """

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        if config["model_type"] != "bert" or config["hidden_act"] != "gelu":
            raise ValueError(f"{folder} holds a {config['model_type']} model with {config['hidden_act']}, not MiniLM")
        self.size: int = config["hidden_size"]
        self._layers: int = config["num_hidden_layers"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._weights = _tensors(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Return a vector of length 1 for each text, and how many tokens they had together."""
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        vectors = np.empty((len(texts), self.size), np.float32)
        # alike in length, so that little is spent on padding
        order = sorted(range(len(texts)), key=lambda index: len(tokens[index]))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            vectors[batch] = self._forward([tokens[index] for index in batch])
        return vectors.tolist(), sum(map(len, tokens))

    def _forward(self, tokens: list[list[int]]) -> Array:
        longest = max(map(len, tokens))
        ids = np.array([row + [0] * (longest - len(row)) for row in tokens])
        mask = np.array([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in tokens], np.float32)
        weights = self._weights
        hidden = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][:longest]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalised(hidden, "embeddings.LayerNorm")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            attended = self._linear(self._attention(hidden, mask, name), f"{name}.attention.output.dense")
            hidden = self._normalised(hidden + attended, f"{name}.attention.output.LayerNorm")
            inner = _gelu(self._linear(hidden, f"{name}.intermediate.dense"))
            hidden = self._normalised(hidden + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        pooled = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def _attention(self, hidden: Array, mask: Array, name: str) -> Array:
        texts, length, size = hidden.shape
        query, key, value = (
            self._linear(hidden, f"{name}.attention.self.{part}")
            .reshape(texts, length, self._heads, size // self._heads)
            .swapaxes(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / np.float32((size // self._heads) ** 0.5)
        scores = np.where(mask[:, None, None, :] > 0, scores, np.float32(-1e9))
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return (scores @ value).swapaxes(1, 2).reshape(texts, length, size)

    def _linear(self, values: Array, name: str) -> Array:
        return values @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalised(self, values: Array, name: str) -> Array:
        centred = values - values.mean(-1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self._epsilon))
        return centred / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _tensors(path: Path) -> dict[str, Array]:
    """Read the 32-bit floats of a safetensors file: a length, a JSON header with offsets, and the bytes."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")

    def read() -> Iterator[tuple[str, Array]]:
        for name, entry in json.loads(data[8:start]).items():
            if name != "__metadata__" and entry["dtype"] == "F32":
                first, last = entry["data_offsets"]
                flat = np.frombuffer(data, "<f4", (last - first) // 4, start + first)
                yield name, flat.reshape(entry["shape"])

    return dict(read())


def _gelu(values: Array) -> Array:
    # numpy has no error function: Abramowitz and Stegun 7.1.26, off by at most 1.5e-7, which 32-bit floats do not see
    scaled = np.abs(values)
    scaled *= np.float32(0.5**0.5)
    t = scaled * np.float32(0.3275911)
    t += 1
    np.reciprocal(t, out=t)
    erf = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        erf += np.float32(factor)
        erf *= t
    np.square(scaled, out=scaled)
    np.negative(scaled, out=scaled)
    erf *= np.exp(scaled, out=scaled)
    np.subtract(1, erf, out=erf)
    np.copysign(erf, values, out=erf)
    erf += 1
    erf *= values
    erf *= np.float32(0.5)
    return erf
