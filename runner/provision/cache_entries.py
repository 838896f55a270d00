"""What is in the cache: entries with their sizes and ages, as they can be shown and chosen from.

Everything here only looks. What it says may be outdated at once, since other processes use the cache meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runner.provision.cache import Cache, lease_file
from runner.provision.lease import Lease

Kind = Literal["venv", "downloads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something in the cache that can be removed as a whole.

    Args:
        kind: `venv`, or `downloads` for a folder that installers fill and empty together.
        name: A venv's key, or the folder's name.
        path: Its folder.
        size_bytes: What it takes on the disk; a file that several entries share counts once.
        last_used: Seconds since the epoch.
        whole: Whether it can be used as it is.
        in_use: Whether something runs in it, or an installation is going on.
        python_version: Series of a venv's interpreter.
        packages: Number of packages in a venv.
        requirements: What a venv was made for, without credentials.
    """

    kind: Kind
    name: str
    path: Path
    size_bytes: int
    last_used: float
    whole: bool
    in_use: bool
    python_version: str = ""
    packages: int = 0
    requirements: tuple[str, ...] = ()


def entries(cache: Cache) -> list[Entry]:
    """Look at everything in a cache; a cache that does not exist has nothing.

    Returns:
        Venvs and installers' folders, the most recently used first.

    Raises:
        CacheError: it cannot be read.
    """
    with cache.boundary():
        seen: set[tuple[int, int]] = set()
        found = [*_venvs(cache, seen), *_downloads(cache, seen)]
    return sorted(found, key=lambda entry: (-entry.last_used, entry.name))


def is_held(lease: Path) -> bool:
    """Whether anybody holds a lease file.

    Raises:
        OSError: it cannot be opened.
    """
    try:
        free = Lease.exclusive(lease)
    except FileNotFoundError:
        return False
    if free is None:
        return True
    free.release()
    return False


def downloads(cache: Cache) -> tuple[Path, ...]:
    """Return the folders that only installations use."""
    return (cache.uv_dir, cache.pip_dir, cache.built_dir, cache.wheels_dir, cache.tools_dir, *cache.former_dirs)


def _venvs(cache: Cache, seen: set[tuple[int, int]]) -> Iterator[Entry]:
    for path in sorted(cache.venvs_dir.glob("*")):
        if not path.is_dir():
            continue
        venv = cache.described(path.name)
        manifest: Any = cache.read_json(path / "manifest.json") if venv is not None else {}
        stamped = lease_file(venv.path) if venv is not None else path
        requirements = manifest.get("requirements", ()) if isinstance(manifest, dict) else ()
        yield Entry(
            kind="venv",
            name=path.name,
            path=path,
            size_bytes=disk_usage(path, seen),
            last_used=_modified(stamped),
            whole=venv is not None,
            in_use=any(is_held(lease) for lease in path.glob("*.lease")),
            python_version=venv.python_version if venv is not None else "",
            packages=len(venv.packages) if venv is not None else 0,
            requirements=tuple(str(line) for line in requirements),
        )


def _downloads(cache: Cache, seen: set[tuple[int, int]]) -> Iterator[Entry]:
    used = is_held(cache.installers_file)
    for path in downloads(cache):
        size = disk_usage(path, seen)
        if size:
            yield Entry(
                kind="downloads",
                name=path.name,
                path=path,
                size_bytes=size,
                last_used=_modified(cache.installers_file),
                whole=True,
                in_use=used,
            )


def disk_usage(path: Path, seen: set[tuple[int, int]]) -> int:
    """Sum what the files below a folder take on the disk.

    Args:
        path: The folder; one that is not there takes nothing.
        seen: Device and inode of the files that were counted before; those of this folder are added.
    """
    total = 0
    waiting = [str(path)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif (status.st_dev, status.st_ino) in seen:
                        continue
                    else:
                        seen.add((status.st_dev, status.st_ino))
                    total += status.st_blocks * 512
        except FileNotFoundError:
            # removed meanwhile
            continue
    return total


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
