"""The files and folders of this machine that packages are taken from, which an installer has to be able to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from runner.provision.index import Indexes
from runner.provision.options import ProvisionOptions


def local_sources(
    requirements: Iterable[str], *, options: ProvisionOptions, indexes: Indexes, lock: Mapping[str, Any] | None
) -> tuple[Path, ...]:
    """Return what of this machine a provisioning reads: find-links, indexes, and what requirements and a lock name.

    Args:
        requirements: PEP 508 requirements.
        options: How packages are looked for.
        indexes: Where packages come from.
        lock: The content of the lock that is installed from.
    """
    found = [
        *options.local_links,
        *(_pages(path) for index in indexes.all if (path := local_path(index.public_url)) is not None),
        *(path for line in requirements if (path := requirement_path(line)) is not None),
        *(path for line in requirements if (path := _repository(Requirement(line).url or "")) is not None),
        *_locked(lock or {}),
    ]
    return tuple(dict.fromkeys(found))


def requirement_path(line: str) -> Path | None:
    """Return the file or folder of this machine that a requirement names by its address."""
    url = Requirement(line).url
    return None if url is None else local_path(url)


def local_path(url: str) -> Path | None:
    """Return what an address stands for, `None` where that is not a file or folder of this machine."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme.lower() == "file" else None


def _repository(url: str) -> Path | None:
    """Return the folder of a repository on this machine that an address names, with or without a revision."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("git+file", "file"):
        return None
    folder, _, name = unquote(parts.path).rpartition("/")
    return Path(folder, name.partition("@")[0])


def _pages(index: Path) -> Path:
    """Return the folder of an index with its files, which usually lie beside its pages."""
    outer, home = index.parent, Path(os.path.expanduser("~"))  # noqa: PTH111 - there may be none, which does not matter
    broad = len(outer.parts) < 3 or outer == home or outer in home.parents
    return index if broad else outer


def _locked(lock: Mapping[str, Any]) -> Iterator[Path]:
    for entry in lock.get("packages", ()):
        if isinstance(entry.get("vcs"), Mapping):
            place = _repository(str(entry["vcs"].get("url", "")))
            yield from () if place is None else (place,)
        files = (*entry.get("wheels", ()), *(entry[key] for key in ("sdist", "archive", "directory") if key in entry))
        for file in files:
            if isinstance(file, Mapping) and isinstance(file.get("path"), str):
                yield Path(file["path"])
