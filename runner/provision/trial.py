"""A package that can only be built, and whose build leaves a mark: to try out whether a program builds anything."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

NAME: Final = "benchmax-trial"

_PROJECT: Final = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def trial_source(mark: Path) -> bytes:
    """Return a source distribution.

    Args:
        mark: What its build makes, before it fails.
    """
    files = {
        # old enough that what it says of itself is not to be relied on
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        "pyproject.toml": _PROJECT,
        "backend.py": f"open({str(mark)!r}, 'w').close()\n",
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"{NAME.replace('-', '_')}-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
