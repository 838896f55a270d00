"""The finished product of provisioning: one virtual environment, whole and described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.provision.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Venv:
    """A virtual environment that is complete and ready to start a worker.

    Args:
        key: Name in the cache: equal for equal inputs, 32 hexadecimal digits.
        path: Its folder.
        python: Its interpreter.
        python_version: Series of that interpreter, such as `3.12`.
        base_python: The installed interpreter it was made from, with all symbolic links resolved.
        base_prefix: Where that interpreter has its standard library, with all symbolic links resolved.
        packages: What is installed in it: canonical name to version, sorted by name.
        installer: What installed the packages, with its version, such as `uv 0.13.9`.
        warnings: What the person who runs the bundle should know about how its requirements were met.
        lease: Keeps it from being removed from the cache; release it when nothing runs in the venv any more. It is
            released by itself when the object goes.
    """

    key: str
    path: Path
    python: Path
    python_version: str
    base_python: Path
    base_prefix: Path
    packages: Mapping[str, str]
    installer: str
    warnings: tuple[str, ...]
    lease: Lease | None = field(default=None, compare=False, repr=False)
