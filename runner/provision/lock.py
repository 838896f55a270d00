"""The lock beside an artifact: a `pylock.toml` (PEP 751) for one Python series, with the inputs it was made from.

Comes in: a resolution, or a file. Goes out: what an installer installs without resolving anything. Refuses: a lock
that other requirements or another series were locked with, one that does not hold what is required, and any address
with credentials in it. This installation's own benchmax is left out of a lock and put in when it is installed, so that
a lock outlives our patch releases.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.markers import (
    InvalidMarker,
    Marker,
    UndefinedComparison,
    UndefinedEnvironmentName,
    default_environment,
)
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from runner.errors import RequirementError, UsageError
from runner.provision.interpreter import Interpreter
from runner.provision.options import ProvisionOptions
from runner.provision.resolution import Resolution
from runner.provision.wheel import DISTRIBUTION, own_version

LOCK_NAME: Final = "pylock.toml"
LOCK_FORMAT: Final = 1
MAX_LOCK_BYTES: Final = 32 * 1024 * 1024
"""A thousand packages with all their files are a few MiB."""

AGAIN: Final = "Run `benchmax lock` again."


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock that was read or made.

    Args:
        data: Its content, as `tomllib` reads it.
        text: The same as text.
        place: What it is called in messages.
    """

    data: Mapping[str, Any]
    text: str
    place: str = LOCK_NAME

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock from a file.

        Raises:
            UsageError: there is no such file.
            RequirementError: it is not a lock.
        """
        try:
            if path.exists() and not path.is_file():
                raise UsageError(f"{path} is not a regular file.", hint="A lock is a file named pylock.toml.")
            with path.open("rb") as file:
                content = file.read(MAX_LOCK_BYTES + 1)
        except FileNotFoundError:
            raise UsageError(f"there is no lock at {path}.", hint="Make it with `benchmax lock DIR`.") from None
        except OSError as error:
            raise UsageError(f"the lock {path} cannot be read: {error.strerror}.") from error
        if len(content) > MAX_LOCK_BYTES:
            raise RequirementError(f"the lock {path} is larger than {MAX_LOCK_BYTES} bytes.", hint=AGAIN)
        lock = cls.parse(content, place=str(path))
        return dataclasses.replace(lock, data=with_addresses(lock.data, str, folder=path.absolute().parent))

    @classmethod
    def parse(cls, content: bytes, *, place: str = LOCK_NAME) -> Lock:
        """Read a lock from its bytes.

        Raises:
            RequirementError: it is not a lock.
        """
        try:
            text = content.decode("utf-8")
            data = tomllib.loads(text)
            reason = _defect(data)
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            text, data = "", {}
        if reason:
            raise RequirementError(f"{place} is not a lock: {reason}.", hint=AGAIN)
        return cls(data, text, place)

    @property
    def digest(self) -> str:
        """SHA-256 of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def has_benchmax(self) -> bool:
        """Whether it says which benchmax is installed; otherwise it is this installation's."""
        return any(_name(entry) == DISTRIBUTION for entry in self.packages)

    @property
    def packages(self) -> Sequence[Mapping[str, Any]]:
        """Its entries."""
        entries: Sequence[Mapping[str, Any]] = self.data.get("packages", ())
        return entries

    @property
    def versions(self) -> Mapping[str, tuple[str, ...]]:
        """Canonical name of each package to its versions, more than one where platforms differ."""
        return Resolution.from_data(self.data).versions

    def check(
        self, *, requirements: Iterable[str], needs: Iterable[str], series: str, options: ProvisionOptions
    ) -> None:
        """Check that it was made for what is wanted now.

        Args:
            requirements: The bundle's requirements, normalised.
            needs: Requirements of benchmax and of the worker.
            series: Python series of the bundle.
            options: How packages are chosen; what contradicts the lock is refused.

        Raises:
            RequirementError: it is stale; the text says what changed.
        """
        inputs = self.data.get("tool", {}).get("benchmax")
        changes = _changes(inputs, requirements, series, options) if isinstance(inputs, Mapping) else []
        wanted = self.data.get("requires-python")
        if not changes and isinstance(wanted, str) and not _accepts_series(wanted, series):
            changes = [f"it is for Python {wanted}, not {series}"]
        if changes:
            raise RequirementError(f"the lock {self.place} is stale: {'; '.join(changes)}.", hint=AGAIN)
        held = Resolution.from_data(self.data, environment=markers(series)).packages
        for line in (*requirements, *needs):
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            if requirement.marker is not None and not requirement.marker.evaluate(dict(markers(series))):
                continue
            if name not in held and name == DISTRIBUTION:
                continue
            version = held.get(name)
            if version is None:
                raise RequirementError(f"the lock {self.place} is stale: it holds no {name}, needed here.", hint=AGAIN)
            if version and not requirement.specifier.contains(version, prereleases=True):
                raise RequirementError(
                    f"the lock {self.place} is stale: it holds {name} {version}, but {requirement} is needed.",
                    hint=AGAIN,
                )

    def for_machine(self, interpreter: Interpreter) -> Resolution:
        """Return what it has for an interpreter on this machine.

        Raises:
            RequirementError: it was made for other machines only.
        """
        environment = markers(interpreter.series, version=interpreter.version)
        meant = self.data.get("environments", ())
        if meant and not any(Marker(str(text)).evaluate(dict(environment)) for text in meant):
            raise RequirementError(
                f"the lock {self.place} was made for another kind of machine: {'; '.join(map(str, meant))}.",
                hint="Run `benchmax lock` again here, or where uv is installed, which locks for all platforms.",
            )
        return Resolution.from_data(self.data, environment=environment)


def lock_beside(options: ProvisionOptions, folder: Path | None) -> ProvisionOptions:
    """Return options that install from the lock in an artifact's folder, if there is one and none is named.

    Raises:
        UsageError: there is none, but there has to be one.
    """
    if options.lock is None and folder is not None:
        path = folder / LOCK_NAME
        if path.exists():
            return dataclasses.replace(options, lock=path)
        if options.locked:
            raise UsageError(
                f"a lock is demanded, but {folder} holds no {LOCK_NAME}.",
                hint=f"Make it with `benchmax lock {folder}`.",
            )
    return options


def own_entry(wheel: Path, *, version: str, digest: str) -> dict[str, object]:
    """Return the entry that adds this installation's own package to a lock."""
    file = {"path": str(wheel), "hashes": {"sha256": digest}}
    return {"name": DISTRIBUTION, "version": version, "archive": file}


def with_addresses(
    data: Mapping[str, Any], change: Callable[[str], str], *, folder: Path | None = None
) -> dict[str, Any]:
    """Return a lock's content with each address of a file, index or repository changed.

    Args:
        data: The content.
        change: Gives the new address.
        folder: What paths are relative to; absolute ones result.
    """

    def absolute(path: str) -> str:
        return path if folder is None else os.path.normpath(folder / path)

    return {**data, "packages": [_map(entry, change, absolute) for entry in data.get("packages", ())]}


def from_folders(data: Mapping[str, Any], folders: Iterable[Path]) -> dict[str, Any]:
    """Return a lock's content in which files that a folder holds are taken from there; their digests stay.

    Args:
        data: The content.
        folders: Folders of this machine.
    """
    there = {file.name: str(file) for folder in folders for file in folder.iterdir()}

    def place(file: Any) -> Any:
        name = unquote(urlsplit(str(file.get("url", ""))).path).rpartition("/")[2]
        if name not in there:
            return file
        return {**{key: value for key, value in file.items() if key != "url"}, "path": there[name]}

    packages = []
    for entry in data.get("packages", ()):
        changed = dict(entry)
        if "wheels" in entry:
            changed["wheels"] = [place(file) for file in entry["wheels"]]
        for key in ("sdist", "archive"):
            if key in entry:
                changed[key] = place(entry[key])
        packages.append(changed)
    return {**data, "packages": packages}


def markers(series: str, *, version: str = "") -> Mapping[str, str]:
    """Return the values of environment markers for CPython of a series on this machine.

    Args:
        series: Such as `3.12`.
        version: Full version; where it does not matter, the series' first.
    """
    known = {key: str(value) for key, value in default_environment().items()}
    full = version or f"{series}.0"
    return {
        **known,
        "python_version": series,
        "python_full_version": full,
        "implementation_name": "cpython",
        "implementation_version": full,
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def _changes(
    inputs: Mapping[str, Any], requirements: Iterable[str], series: str, options: ProvisionOptions
) -> list[str]:
    changes = []
    if inputs.get("python") != series:
        changes.append(f"it is for Python {inputs.get('python')}, not {series}")
    benchmax = series_of_version(own_version())
    if inputs.get("benchmax") != benchmax:
        changes.append(f"it is for benchmax {inputs.get('benchmax')}, not {benchmax}")
    before, now = set(map(str, inputs.get("requirements", ()))), set(requirements)
    if added := sorted(now - before):
        changes.append(f"{', '.join(added)} was not required when it was made")
    if gone := sorted(before - now):
        changes.append(f"{', '.join(gone)} is not required any more")
    if options.prerelease != "default" and inputs.get("prerelease") != options.prerelease:
        changes.append(f"it was made with prerelease mode {inputs.get('prerelease')}, not {options.prerelease}")
    if options.exclude_newer is not None and inputs.get("exclude-newer") != options.exclude_newer.isoformat():
        limit = f"files up to {inputs['exclude-newer']}" if "exclude-newer" in inputs else "files of any date"
        changes.append(f"it was made with {limit}, not up to {options.exclude_newer.isoformat()}")
    return changes


def _defect(data: Mapping[str, Any]) -> str:
    """Say what keeps a document from being a lock, nothing if it is one."""
    if not str(data.get("lock-version", "")).startswith("1."):
        return "it has no lock-version 1.x"
    entries = data.get("packages", [])
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("name"), str) for e in entries
    ):
        return "its packages are not named tables"
    if not isinstance(data.get("tool", {}), dict):
        return "its tool table is not a table"
    for text in (*data.get("environments", ()), *(entry["marker"] for entry in entries if "marker" in entry)):
        try:
            Marker(str(text)).evaluate(dict(markers("3.12")))
        except (InvalidMarker, UndefinedEnvironmentName, UndefinedComparison) as error:
            return f"its marker {str(text)!r} cannot be read: {str(error).splitlines()[0]}"
    for entry in entries:
        for file in _files(entry):
            if not isinstance(file, dict) or not isinstance(file.get("hashes"), dict) or not file["hashes"]:
                return f"a file of {entry['name']!r} has no digest"
    return ""


def _files(entry: Mapping[str, Any]) -> Iterator[Any]:
    wheels = entry.get("wheels", ())
    yield from wheels if isinstance(wheels, list) else ()
    yield from (entry[key] for key in ("sdist", "archive") if key in entry)


def _map(value: Any, address: Callable[[str], str], path: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        changed = {}
        for key, inner in value.items():
            change = address if key in ("url", "index") else path if key == "path" else None
            changed[key] = (
                change(inner) if change is not None and isinstance(inner, str) else _map(inner, address, path)
            )
        return changed
    if isinstance(value, list):
        return [_map(inner, address, path) for inner in value]
    return value


def without_user(url: str) -> str:
    """Remove user name and password; a name that comes with every SSH address stays."""
    parts = urlsplit(url)
    if "@" not in parts.netloc or (parts.scheme.endswith("ssh") and parts.password is None):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _accepts_series(specifier: str, series: str) -> bool:
    try:
        # a series has a patch release that fits, whichever one its author had in mind
        return any(SpecifierSet(specifier).contains(f"{series}.{patch}") for patch in range(40))
    except InvalidSpecifier:
        return False


def _name(entry: Mapping[str, Any]) -> str:
    return canonicalize_name(str(entry["name"]))


def series_of_version(version: str) -> str:
    """Return the first two parts of a version."""
    return ".".join(version.split(".")[:2])
