"""A finished resolution: exact packages, as the PEP 751 lock text both installers read."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from runner.provision.document import write_lock_text


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was resolved.

    Args:
        lock: Text of a `pylock.toml` with a digest for every file.
        data: The same as `tomllib` reads it.
        packages: Canonical name to version; the version is empty where only a build can tell it.
        versions: Canonical name to all versions, of which a lock for several platforms can have more than one.
    """

    lock: str
    data: Mapping[str, Any]
    packages: Mapping[str, str]
    versions: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_lock(cls, text: str, environment: Mapping[str, str] | None = None) -> Resolution:
        """Read a lock.

        Args:
            text: The lock.
            environment: Values of markers; packages that are not for it are left out. `None` takes all.

        Raises:
            ValueError: it is not a lock.
        """
        return cls.from_data(tomllib.loads(text), text, environment)

    @classmethod
    def from_data(
        cls, data: Mapping[str, Any], text: str = "", environment: Mapping[str, str] | None = None
    ) -> Resolution:
        """Read a lock that is parsed already; see `from_lock`."""
        versions: dict[str, list[str]] = {}
        for entry in data.get("packages", []):
            marker = str(entry.get("marker", ""))
            if environment is None or not marker or Marker(marker).evaluate(dict(environment)):
                version = str(entry.get("version", ""))
                versions.setdefault(canonicalize_name(str(entry["name"])), []).append(version)
        ordered = {name: tuple(sorted(found, key=_order)) for name, found in sorted(versions.items())}
        packages = {name: found[-1] for name, found in ordered.items()}
        return cls(text or write_lock_text(data), data, packages, ordered)

    @classmethod
    def from_pip_report(cls, report: Mapping[str, Any]) -> Resolution:
        """Write the lock of an installation report of pip.

        Raises:
            KeyError: the report has another form.
        """
        items = sorted(report["install"], key=lambda item: canonicalize_name(item["metadata"]["name"]))
        return cls.from_data({"lock-version": "1.0", "created-by": "benchmax", "packages": [*map(_entry, items)]})


NOTHING: Final = Resolution.from_data({"lock-version": "1.0", "created-by": "benchmax"})
"""No packages."""


def _entry(item: Mapping[str, Any]) -> Mapping[str, object]:
    metadata, info = item["metadata"], item["download_info"]
    url = info["url"]
    entry: dict[str, object] = {"name": canonicalize_name(metadata["name"]), "version": metadata["version"]}
    if "vcs_info" in info:
        vcs = info["vcs_info"]
        source = {"type": vcs["vcs"], "url": url, "commit-id": vcs["commit_id"]}
        if "subdirectory" in info:
            source["subdirectory"] = info["subdirectory"]
        entry["vcs"] = source
    elif "dir_info" in info:
        entry["directory"] = {"path": _path(url)}
    else:
        file: dict[str, object] = {"path": _path(url)} if url.startswith("file:") else {"url": url}
        file["hashes"] = dict(info["archive_info"]["hashes"])
        if item["is_direct"]:
            entry["archive"] = file
        elif urlsplit(url).path.endswith(".whl"):
            entry["wheels"] = [file]
        else:
            entry["sdist"] = file
    return entry


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _order(version: str) -> tuple[int, Sequence[Version]]:
    try:
        return 1, (Version(version),)
    except InvalidVersion:
        return 0, ()
