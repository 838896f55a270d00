"""The worker's code as one read-only, content-addressed folder outside of any venv."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

from runner.errors import CacheError

MODULES: Final = (
    "errors.py",
    "limits.py",
    "text.py",
    "fields.py",
    "protocol.py",
    "frames.py",
    "channel.py",
    "spinning.py",
    "transcript.py",
)
BOOT: Final = Path("worker") / "boot.py"


def ship(root: Path) -> Path:
    """Make sure that the worker's code is below `root`, and return the path of its first file.

    The folder's name is a hash of its content, so releases side by side share a cache and nothing is ever rewritten.

    Raises:
        CacheError: the folder cannot be written.
    """
    source = Path(__file__).parent
    files = {Path(name): (source / name).read_bytes() for name in MODULES}
    files |= {Path("worker") / path.name: path.read_bytes() for path in sorted((source / "worker").glob("*.py"))}
    files[Path("__init__.py")] = b""
    digest = hashlib.sha256()
    for path, data in sorted(files.items()):
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    folder = root / digest.hexdigest()[:32]
    try:
        if not folder.is_dir():
            _publish(files, folder)
        _check(files, folder)
    except OSError as error:
        raise CacheError(
            f"cannot write the worker's code to {folder}: {error.strerror}.",
            hint="Set BENCHMAX_CACHE_DIR to a writable folder.",
        ) from error
    return folder / BOOT


def _check(files: dict[Path, bytes], folder: Path) -> None:
    """Refuse a folder that a full disk, or a bundle run without a sandbox, has changed."""
    for path, data in files.items():
        target = folder / path
        if not target.is_file() or target.read_bytes() != data:
            raise CacheError(
                f"{target} is not what was written there.", hint=f"Remove {folder}; it is made again when needed."
            )


def _publish(files: dict[Path, bytes], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".shipping-"))
    try:
        for path, data in files.items():
            target = temporary / path
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            target.chmod(0o444)
        (temporary / "worker").chmod(0o555)
        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            # another process may have been faster; its folder has the same content
            if not folder.is_dir():
                raise
        folder.chmod(0o555)
    finally:
        if temporary.is_dir():
            (temporary / "worker").chmod(0o755)
            shutil.rmtree(temporary, ignore_errors=True)
