"""How files get from uv's cache into a venv: never so that the two share what can be written.

uv's own `clone` takes hard links where the file system has no reflinks, so whether it has is found out here. A worker
that is not kept from writing by a mount could otherwise change a package in uv's cache, and with it later venvs.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from pathlib import Path
from typing import Final, Literal

FICLONE: Final = 0x40049409
"""Request number of `ioctl` that lets a file share another one's blocks until either is written."""


def link_mode(folder: Path) -> Literal["clone", "copy"]:
    """Return uv's link mode for venvs in a folder: reflinks where its file system has them, else copies.

    Raises:
        OSError: the folder cannot be written.
    """
    with tempfile.TemporaryFile(dir=folder) as source, tempfile.TemporaryFile(dir=folder) as target:
        source.write(b"benchmax")
        source.flush()
        with contextlib.suppress(OSError):
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
            return "clone"
    return "copy"
