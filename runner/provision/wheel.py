"""Makes a wheel of this installation's `benchmax` package, so that no index is asked for it.

The wheel holds `benchmax` alone, without the runner, and asks only for what code in a worker needs. Equal sources
give equal bytes, so its digest says whether two venvs hold the same release or the same work in progress.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageMetadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from runner.errors import ProvisionError, RequirementError
from runner.provision.cache import Cache

DISTRIBUTION: Final = "benchmax"
LIBRARY_NEEDS: Final = ("cloudpickle", "httpx", "openai", "packaging")
"""What `benchmax` itself imports; the versions are those of this distribution's own requirements."""

LIBRARY_EXTRAS: Final = ("harbor",)
"""Extras of this distribution that are for environments."""

WORKER_NEEDS: Final = ("msgspec",)
"""What the worker's own code imports besides the standard library."""

_FIXED_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnWheel:
    """The wheel before it is on disk.

    Args:
        version: Of this installation.
        digest: SHA-256 of the wheel's bytes.
        file_name: As wheels are named.
        data: Its bytes.
    """

    version: str
    digest: str
    file_name: str
    data: bytes

    def store(self, cache: Cache) -> Path:
        """Put the wheel into the cache, once per content.

        Raises:
            CacheError: it cannot be written.
        """
        path = cache.wheels_dir / self.digest[:32] / self.file_name
        if not path.exists():
            cache.write(path, self.data)
        with cache.boundary():
            # a build may read it as another user
            path.chmod(0o644)
            path.parent.chmod(0o755)
        return path


@functools.cache
def _installed() -> PackageMetadata | None:
    """Return this distribution's metadata; reading it takes longer than finding a cached venv."""
    try:
        return importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Return the version of this installation, `unknown` where it is not installed as a distribution."""
    metadata = _installed()
    return "unknown" if metadata is None else str(metadata["Version"])


def own_requires_python() -> str:
    """Return the Python versions this installation supports, such as `>=3.11,<3.14`."""
    metadata = _installed()
    return "" if metadata is None else str((metadata.get_all("Requires-Python") or [""])[0])


def own_requirements(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return this distribution's own requirements on the given packages, sorted.

    Raises:
        ProvisionError: the installed metadata does not name one of them.
    """
    found: dict[str, str] = {}
    metadata = _installed()
    for text in (None if metadata is None else metadata.get_all("Requires-Dist")) or ():
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) in names and requirement.marker is None:
            found[canonicalize_name(requirement.name)] = str(requirement)
    missing = sorted(set(names) - set(found))
    if missing:
        raise ProvisionError(
            f"this installation of benchmax does not declare {', '.join(missing)} among its requirements.",
            hint="Its metadata is older than its code; install it again.",
        )
    return tuple(sorted(found.values()))


def own_extra(extra: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what one of this distribution's extras adds to its requirements, without markers.

    Args:
        extra: Its name.
        environment: Values of environment markers where it is to be installed.

    Raises:
        RequirementError: there is no such extra.
    """
    known = _own_extras()
    if canonicalize_name(extra) not in known:
        raise RequirementError(
            f"{DISTRIBUTION}[{extra}] is asked for, but benchmax {own_version()} has no such extra.",
            hint=f"It has: {', '.join(known) or 'none'}.",
        )
    here = {**environment, "extra": canonicalize_name(extra)}
    found = []
    for text in _own_requires():
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        # one that holds without the extra as well is no part of it
        if marker is not None and marker.evaluate(here) and not marker.evaluate({**here, "extra": ""}):
            found.append(str(requirement))
    return tuple(sorted(found))


def _own_extras() -> list[str]:
    metadata = _installed()
    return sorted({canonicalize_name(name) for name in (metadata and metadata.get_all("Provides-Extra")) or ()})


def _own_requires() -> list[str]:
    metadata = _installed()
    return sorted((metadata and metadata.get_all("Requires-Dist")) or ())


def _is_of_an_extra(requirement: Requirement) -> bool:
    return any(f'extra == "{extra}"' in f"{requirement.marker}" for extra in LIBRARY_EXTRAS)


def build_own_wheel() -> OwnWheel:
    """Build the wheel in memory.

    Raises:
        ProvisionError: `benchmax` is not installed as a distribution, or its sources cannot be read.
    """
    version = own_version()
    if version == "unknown":
        raise ProvisionError(
            "benchmax is imported from a folder that is not installed, so its version is unknown.",
            hint="Install it, for example with `pip install -e .`.",
        )
    info = f"{DISTRIBUTION}-{version}.dist-info"
    tag = "py3-none-any"
    contents = dict(_sources())
    contents[f"{info}/METADATA"] = _metadata(version)
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: benchmax {version}\nRoot-Is-Purelib: true\nTag: {tag}\n".encode()
    )
    record = "".join(f"{path},sha256={_record_digest(data)},{len(data)}\n" for path, data in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    buffer = io.BytesIO()
    # stored, not deflated: compressed bytes differ between versions of zlib, and it is read once
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, data in contents.items():
            entry = zipfile.ZipInfo(path, _FIXED_TIME)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data)
    data = buffer.getvalue()
    return OwnWheel(
        version=version,
        digest=hashlib.sha256(data).hexdigest(),
        file_name=f"{DISTRIBUTION}-{version}-{tag}.whl",
        data=data,
    )


def _sources() -> Iterator[tuple[str, bytes]]:
    spec = importlib.util.find_spec(DISTRIBUTION)
    if spec is None or not spec.submodule_search_locations:
        raise ProvisionError("the package benchmax cannot be found next to the runner.", hint="Install it again.")
    root = spec.submodule_search_locations[0]
    found: dict[str, str] = {}
    # as text: this is done for every venv that is looked for
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        inside = f"{DISTRIBUTION}{folder.removeprefix(root)}"
        found |= {f"{inside}/{name}": f"{folder}/{name}" for name in names if not name.endswith((".pyc", ".pyo"))}
    for name, path in sorted(found.items()):
        try:
            yield name, Path(path).read_bytes()
        except OSError as error:
            raise ProvisionError(f"the source {path} cannot be read: {error.strerror}.") from error


def _metadata(version: str) -> bytes:
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {version}",
        f"Requires-Python: {own_requires_python()}",
        *(f"Requires-Dist: {requirement}" for requirement in own_requirements(LIBRARY_NEEDS)),
        # who bundles there reads what a declared extra brings
        *(f"Provides-Extra: {extra}" for extra in LIBRARY_EXTRAS),
        *(f"Requires-Dist: {text}" for text in _own_requires() if _is_of_an_extra(Requirement(text))),
    ]
    return ("\n".join(lines) + "\n").encode()


def _record_digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
