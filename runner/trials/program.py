"""The program within a sandbox, packed: an archive that any Python runs, without anything else of the runner's."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path
from typing import Final

INSIDE: Final = Path(__file__).parent / "inside"
PACKAGES: Final = ("runner", "runner/trials")
MAIN: Final = "import os\nfrom runner.trials.inside.program import main\nos._exit(main())\n"
"""Without waiting for its threads, which may be waiting for anything."""


@functools.cache
def packed_program() -> bytes:
    """Pack it, once per process; the same files make the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        texts = {"__main__.py": MAIN, **{f"{package}/__init__.py": "" for package in PACKAGES}}
        texts |= {f"runner/trials/inside/{path.name}": path.read_text() for path in sorted(INSIDE.glob("*.py"))}
        for name, text in texts.items():
            # with the time of no day, so that it is not in the bytes
            archive.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()
