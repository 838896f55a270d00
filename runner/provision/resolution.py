"""A finished resolution: exact packages, as the PEP 751 lock text both installers read."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was resolved.

    Args:
        lock: Text of a `pylock.toml` with a digest for every file.
        packages: Canonical name to version; the version is empty where only a build can tell it.
    """

    lock: str
    packages: Mapping[str, str]

    @classmethod
    def from_lock(cls, text: str) -> Resolution:
        """Read a lock.

        Raises:
            ValueError: it is not a lock.
        """
        entries = tomllib.loads(text).get("packages", [])
        packages = {canonicalize_name(str(entry["name"])): str(entry.get("version", "")) for entry in entries}
        return cls(text, dict(sorted(packages.items())))

    @classmethod
    def from_pip_report(cls, report: Mapping[str, Any]) -> Resolution:
        """Write the lock of an installation report of pip.

        Raises:
            KeyError: the report has another form.
        """
        lines = ['lock-version = "1.0"', 'created-by = "benchmax"', ""]
        for item in sorted(report["install"], key=lambda item: canonicalize_name(item["metadata"]["name"])):
            lines += _entry(item)
        return cls.from_lock("\n".join(lines))


def _entry(item: Mapping[str, Any]) -> Sequence[str]:
    metadata, info = item["metadata"], item["download_info"]
    url = info["url"]
    lines = ["[[packages]]", f"name = {_quote(canonicalize_name(metadata['name']))}"]
    lines.append(f"version = {_quote(metadata['version'])}")
    if "vcs_info" in info:
        vcs = info["vcs_info"]
        subdirectory = f", subdirectory = {_quote(info['subdirectory'])}" if "subdirectory" in info else ""
        lines.append(
            f"vcs = {{ type = {_quote(vcs['vcs'])}, url = {_quote(url)}, "
            f"commit-id = {_quote(vcs['commit_id'])}{subdirectory} }}"
        )
    elif "dir_info" in info:
        lines.append(f"directory = {{ path = {_quote(_path(url))} }}")
    else:
        hashes = ", ".join(f"{name} = {_quote(digest)}" for name, digest in info["archive_info"]["hashes"].items())
        where = f"path = {_quote(_path(url))}" if url.startswith("file:") else f"url = {_quote(url)}"
        file = f"{{ {where}, hashes = {{ {hashes} }} }}"
        if item["is_direct"]:
            lines.append(f"archive = {file}")
        elif urlsplit(url).path.endswith(".whl"):
            lines.append(f"wheels = [{file}]")
        else:
            lines.append(f"sdist = {file}")
    return [*lines, ""]


def _path(url: str) -> str:
    return unquote(urlsplit(url).path)


def _quote(text: str) -> str:
    # a JSON string is a TOML basic string, except that TOML forbids the bare character 0x7F
    return re.sub("\x7f", r"\\u007F", json.dumps(text, ensure_ascii=False))
