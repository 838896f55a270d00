"""Looks for texts in everything of a worker's processes that its machine's owner can see: memory, variables, files."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PIECE_BYTES = 16 * 1024 * 1024
OVERLAP_BYTES = 512
"""More than any needle, so that one that lies across two pieces is found."""


def tree(pid: int) -> set[int]:
    """Return a process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                # it has ended meanwhile
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def topmost(pid: int) -> int:
    """Return the child of this process that a process is below."""
    while (parent := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])) != os.getpid():
        pid = parent
    return pid


def spelled(secret: str) -> dict[str, bytes]:
    """Return a secret as programs may hold it."""
    plain = secret.encode()
    return {
        "plain": plain,
        "base64": base64.b64encode(plain).rstrip(b"=")[:-1],
        "hexadecimal": plain.hex().encode(),
        "two bytes a character": secret.encode("utf-16-le"),
        "four bytes a character": secret.encode("utf-32-le"),
        "backwards": plain[::-1],
    }


def places(pids: Iterable[int], needles: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Say where which needle is found; each process must be readable as a whole.

    Args:
        pids: The processes.
        needles: Texts by name.
    """
    found: dict[str, set[str]] = {name: set() for name in needles}
    for pid in pids:
        for place, data in _everything(pid):
            for name, needle in needles.items():
                if needle in data:
                    found[name].add(f"{place} of {pid}")
    return {name: where for name, where in found.items() if where}


def files(pids: Iterable[int], needles: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Say in which files of the workers' own folders which needle is found; they are those around their homes."""
    homes = {
        Path(os.fsdecode(variable.removeprefix(b"HOME=")))
        for pid in pids
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if variable.startswith(b"HOME=") and b"benchmax-worker-" in variable
    }
    assert homes, "no worker has a home"
    contents = {path: path.read_bytes() for home in homes for path in home.parents[1].rglob("*") if path.is_file()}
    found = {name: {str(path) for path, data in contents.items() if needle in data} for name, needle in needles.items()}
    return {name: where for name, where in found.items() if where}


def _everything(pid: int) -> Iterator[tuple[str, bytes]]:
    process = Path(f"/proc/{pid}")
    for name in ("environ", "cmdline"):
        yield name, (process / name).read_bytes()
    for descriptor in (process / "fd").iterdir():
        target = str(descriptor.readlink())
        # its channels are other ends of sockets; what has content is looked at
        if target.startswith(("/memfd:", "/tmp/", "/dev/shm/")):
            yield f"descriptor {target}", descriptor.read_bytes()
    yield from _memory(process)


def _memory(process: Path) -> Iterator[tuple[str, bytes]]:
    with (process / "mem").open("rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            span, rights, _, _, _, *name = line.split(maxsplit=5)
            if not rights.startswith("r") or "[vvar" in line or "[vsyscall]" in line:
                continue
            start, end = (int(edge, 16) for edge in span.split("-"))
            while start < end:
                size = min(PIECE_BYTES, end - start)
                try:
                    data = os.pread(memory.fileno(), size, start)
                except OSError:
                    # a file that is shorter than its map
                    break
                yield f"memory {name}", data
                start += size if start + size >= end else size - OVERLAP_BYTES
