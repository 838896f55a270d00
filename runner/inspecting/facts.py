"""What an author's tool wrote down beside an artifact: a claim, shown as one and relied on by nothing.

Comes in: a folder that may hold `env-facts.json`. Goes out: what of it has the expected form, bounded, and what is
wrong with the rest. It may hold anything, so nothing in it is an error.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from runner.artifact import FACTS_NAME
from runner.inspecting.bounds import MAX_FACTS_BYTES, SHOWN_CHARS
from runner.text import bounded, one_line

FORMAT: Final = 1
MAX_LISTED: Final = 200
MAX_SOURCE_CHARS: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What the author's tool packed by value, and its size in bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What the author's tool found needed where the bundle is loaded, and where it comes from; empty when unknown."""

    module: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorsFacts:
    """An author's facts, as far as they could be read.

    Args:
        trouble: Why they could not be read, or do not belong to this artifact; empty when neither.
        digest: The artifact that they are about.
        cloudpickle_version: What pickled it.
        by_value: What travels in the pickle.
        by_reference: What has to be there where it is loaded.
        source: The class's text, empty when there is none.
        other: Other entries, each as `name = JSON`, in one line.
    """

    trouble: str = ""
    digest: str = ""
    cloudpickle_version: str = ""
    by_value: tuple[Share, ...] = ()
    by_reference: tuple[Needed, ...] = ()
    source: str = ""
    other: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return them as JSON values."""
        return asdict(self)


def read_facts(folder: Path, digest: str) -> AuthorsFacts | None:
    """Read the facts beside an artifact.

    Args:
        folder: The artifact's folder.
        digest: The artifact's digest, which the facts should name.

    Returns:
        The facts, or `None` where there are none.
    """
    path = folder / FACTS_NAME
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return AuthorsFacts(trouble="it is not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_FACTS_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return AuthorsFacts(trouble=f"it cannot be read: {error.strerror}")
    if len(data) > MAX_FACTS_BYTES:
        return AuthorsFacts(trouble=f"it is larger than {MAX_FACTS_BYTES:,} bytes")
    try:
        content: object = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        return AuthorsFacts(trouble=one_line(f"it is not JSON: {error}"))
    if not isinstance(content, dict):
        return AuthorsFacts(trouble="it is not a JSON object")
    return _facts(content, digest)


def _facts(content: dict[str, object], digest: str) -> AuthorsFacts:
    claimed = _text(content.get("digest"))
    trouble = ""
    if content.get("format") != FORMAT:
        trouble = f"it is of format {_json(content.get('format'))}, and {FORMAT} is known here"
    elif claimed != digest:
        trouble = "it is about another artifact" if claimed else "it does not say which artifact it is about"
    source = content.get("source")
    known = {"format", "digest", "cloudpickle_version", "by_value", "by_reference", "source"}
    by_value, by_reference = _entries(content.get("by_value")), _entries(content.get("by_reference"))
    return AuthorsFacts(
        trouble=trouble,
        digest=claimed,
        cloudpickle_version=_text(content.get("cloudpickle_version")),
        by_value=tuple(Share(name=_text(one.get("name")), bytes=_size(one.get("bytes"))) for one in by_value),
        by_reference=tuple(
            Needed(module=_text(one.get("module")), source=_text(one.get("source"))) for one in by_reference
        ),
        source=bounded(source, MAX_SOURCE_CHARS) if isinstance(source, str) else "",
        other=tuple(_other(content, known)),
    )


def _entries(value: object) -> list[dict[str, object]]:
    return [one for one in value[:MAX_LISTED] if isinstance(one, dict)] if isinstance(value, list) else []


def _other(content: dict[str, object], known: set[str]) -> Iterable[str]:
    for name in [name for name in content if name not in known][:MAX_LISTED]:
        yield f"{one_line(name, 60)} = {_json(content[name])}"


def _json(value: object) -> str:
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    return one_line(json.dumps(value, ensure_ascii=False), SHOWN_CHARS)


def _text(value: object) -> str:
    return one_line(value) if isinstance(value, str) else ""


def _size(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0
