"""uv as installer: resolves with `uv pip compile`, installs with `uv pip sync`, always without its configuration."""

from __future__ import annotations

import functools
import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from runner.provision.command import Finished
from runner.provision.diagnosis import Failure, InstallerFailedError, bare_name
from runner.provision.document import write_lock_text
from runner.provision.link_mode import link_mode
from runner.provision.lock import LOCK_NAME, from_folders, with_addresses
from runner.provision.refusals import missing_offline, nothing_so_old, relay_failure, wheels_only
from runner.provision.resolution import NOTHING, Resolution
from runner.provision.uv_output import diagnose
from runner.provision.workspace import Workspace

OLDEST: Final = (0, 12)
"""Older ones cannot forbid prereleases of one package, nor write a PEP 751 lock reliably."""

_UNCACHED: Final = re.compile(r"Identified uncached distribution: (\S+)")
_OFFLINE: Final = (
    re.compile(r"([A-Za-z0-9][\w.\-]*(?:==[^\s,]+)?) (?:was|were) not found in the (?:cache|provided)"),
    re.compile(r"([A-Za-z0-9][\w.\-]*==[^\s,]+) needs to be downloaded from a registry"),
)
_NOTHING: Final = re.compile(r"there are no versions of ([A-Za-z0-9][\w.\-]*)(?: and|,)")
_NO_BUILD: Final = re.compile(r"Wheels are required for `([^`=]+)(?:==[^`]*)?`")

_EACH: Final = ("--no-config", "--no-python-downloads", "--color", "never")


@functools.cache
def find_uv() -> tuple[Path, str] | None:
    """Return uv's path and version, `None` where there is none that is new enough.

    The one installed next to the runner comes first, then PATH.
    """
    try:
        from uv import find_uv_bin

        place, version = Path(find_uv_bin()), importlib.metadata.version("uv")
        if _new_enough(version):
            return place, version
    except (ImportError, FileNotFoundError):
        # optional at run time: pip takes its place
        pass
    on_path = shutil.which("uv")
    if on_path is None or not Path(on_path).is_absolute():
        return None
    try:
        answer = subprocess.run([on_path, "--version"], capture_output=True, text=True, timeout=20, check=True)
        version = answer.stdout.split()[1]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return (Path(on_path), version) if _new_enough(version) else None


def _new_enough(version: str) -> bool:
    try:
        return Version(version).release[:2] >= OLDEST
    except InvalidVersion:
        return False


class Uv:
    """uv for one build."""

    def __init__(self, workspace: Workspace) -> None:
        found = find_uv()
        assert found is not None  # the family is decided by the same function
        self._uv, self._version = found
        self._space = workspace
        options, index = workspace.options, workspace.index
        self._common = (
            *(*_EACH, "--cache-dir", str(workspace.cache.uv_dir)),
            *(("--only-binary", ":all:") if options.only_binary else ()),
            *(("--offline",) if options.offline else ()),
        )
        self._sources = (
            *(word for place in options.find_links for word in ("--find-links", place)),
            *(("--exclude-newer", options.cutoff) if options.cutoff is not None else ()),
        )
        # in the environment, since every process on the machine can read a command line
        self._env = {
            "UV_DEFAULT_INDEX": index.installer_url,
            "UV_HTTP_TIMEOUT": "30",
            "UV_HTTP_RETRIES": "2",
            **(workspace.relay.environment() if workspace.relay is not None else {}),
        }

    @property
    def title(self) -> str:
        """Name and version."""
        return f"uv {self._version}"

    @property
    def locks_all_platforms(self) -> bool:
        """Whether `universal` resolutions hold for other kinds of machines."""
        return True

    async def resolve(
        self,
        lines: Sequence[str],
        *,
        allowed: AbstractSet[str],
        forbidden: AbstractSet[str],
        follow_dependencies: bool,
        universal: bool = False,
    ) -> Resolution:
        """See `Installer.resolve`."""
        words = [
            *([] if follow_dependencies else ["--no-deps"]),
            *(f"--prerelease-package={name}=allow" for name in sorted(allowed)),
            *(f"--prerelease-package={name}=disallow" for name in sorted(forbidden)),
        ]
        if universal:
            series = self._space.interpreter.series
            words += ["--universal", "--python-version", series]
            lines = [_only_for(line, series) for line in lines]
        finished, lock = await self._compile(lines, words)
        if finished.code == 0:
            return lock
        if lacking := await self._all_lacking(finished, lines, words):
            refuse = missing_offline if self._space.options.offline else wheels_only
            raise InstallerFailedError(refuse(lacking, self._space, finished.stderr))
        raise InstallerFailedError(self._diagnosed(finished))

    async def _all_lacking(self, finished: Finished, lines: Sequence[str], words: Sequence[str]) -> set[str]:
        """Return all that the options keep uv from getting; it says only what it meets first, so leave that out."""
        direct = {canonicalize_name(Requirement(line).name) for line in lines}
        lacking: set[str] = set()
        while found := {name for name in self._lacking(finished) if bare_name(name) not in map(bare_name, lacking)}:
            if not lacking:
                # without what is lacking, older releases with other needs would do; meant are the newest
                _, newest = await self._compile(lines, ["--no-deps", *words])
                lines = [*lines, *(f"{name}=={version}" for name, version in newest.packages.items() if version)]
            # what a package needs is lacking for sure; of the package itself, perhaps only another version is
            lacking |= {name for name in found if bare_name(name) not in direct} or found
            finished, _ = await self._compile(lines, words, {bare_name(name) for name in lacking})
            if finished.code == 0:
                break
        return lacking

    async def _compile(
        self, lines: Sequence[str], words: Sequence[str], excluded: AbstractSet[str] = frozenset()
    ) -> tuple[Finished, Resolution]:
        asked, left_out = self._space.scratch / "requirements.in", self._space.scratch / "excluded.in"
        lock = self._space.scratch / LOCK_NAME
        with self._space.cache.boundary():
            asked.write_text("\n".join(lines) + "\n", encoding="utf-8")
            left_out.write_text("".join(f"{name}\n" for name in sorted(excluded)), encoding="utf-8")
            lock.unlink(missing_ok=True)
        finished = await self._space.run(
            [
                *(str(self._uv), "pip", "compile", *self._common, *self._sources, "--no-progress", "--no-header"),
                *("--python", str(self._space.interpreter.path), "--format", LOCK_NAME, "--quiet", *words),
                *(("--excludes", str(left_out)) if excluded else ()),
                *("--output-file", str(lock), str(asked)),
            ],
            phase="resolve",
            env=self._env,
        )
        if finished.code != 0:
            return finished, NOTHING
        with self._space.cache.boundary():
            text = lock.read_text(encoding="utf-8")
        data = with_addresses(tomllib.loads(text), self._space.index.outward, folder=self._space.scratch)
        return finished, Resolution.from_data(data)

    async def install(self, lock: Resolution, *, python: Path) -> None:
        """See `Installer.install`."""
        options = self._space.options
        data = from_folders(lock.data, options.link_folders)
        data = with_addresses(data, self._space.index.inward)
        data = _with_index(data, self._space.index.installer_url)
        file = self._space.scratch / "pylock.install.toml"
        with self._space.cache.boundary():
            file.write_text(write_lock_text(data), encoding="utf-8")
            mode = link_mode(self._space.scratch)
        words = [
            *(str(self._uv), "pip", "sync", *self._common, "--link-mode", mode),
            *("--preview-features", "pylock", "--python", str(python), str(file)),
        ]
        if options.offline:
            await self._check_cached(words, data)
        finished = await self._space.run(words, phase="install", env=self._env)
        if finished.code != 0:
            raise InstallerFailedError(self._diagnosed(finished))

    async def _check_cached(self, words: Sequence[str], data: Mapping[str, Any]) -> None:
        """Look for all that is missing at once: the installation itself would end at the first."""
        looked = await self._space.run([*words, "--dry-run", "--verbose"], phase="install", env=self._env, quiet=True)
        loaded = {
            canonicalize_name(entry["name"]) for entry in data["packages"] if "url" in str(_first_file(entry).keys())
        }
        missing = {name for name in _UNCACHED.findall(looked.stderr) if bare_name(name) in loaded}
        if missing:
            raise InstallerFailedError(missing_offline(missing, self._space))

    def _lacking(self, finished: Finished) -> set[str]:
        """Return what the options keep uv from getting, as its words have it."""
        flat = " ".join(finished.stderr.split())
        found: set[str] = set()
        if self._space.options.offline:
            for pattern in _OFFLINE:
                found.update(pattern.findall(flat))
        if self._space.options.only_binary:
            found.update(_NO_BUILD.findall(flat))
        return found

    def _diagnosed(self, finished: Finished) -> Failure:
        if failure := relay_failure(self._space, finished.stderr):
            return failure
        if self._space.options.cutoff is not None:
            # with a version, others of it may be old enough
            match = _NOTHING.search(" ".join(finished.stderr.split()))
            if match is not None:
                return nothing_so_old(match[1], self._space, finished.stderr)
        return diagnose(finished, self._space)


def _only_for(line: str, series: str) -> str:
    """Narrow a requirement to a series, so that no other one is resolved for."""
    requirement = Requirement(line)
    only = f"python_version == '{series}'"
    requirement.marker = Marker(f"({requirement.marker}) and {only}" if requirement.marker is not None else only)
    return str(requirement)


def _with_index(data: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Say of each package that it comes from the index.

    uv looks for what it has loaded before by index. Without one it asks for every file again, and where a server does
    not answer "not modified" it loads all of them again. What it has is checked by digest either way.
    """
    packages = [
        {**entry, "index": url}
        if not {"index", "archive", "vcs", "directory"} & entry.keys() and "url" in _first_file(entry)
        else entry
        for entry in data["packages"]
    ]
    return {**data, "packages": packages}


def _first_file(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return where a package of a lock comes from."""
    wheels = entry.get("wheels") or [{}]
    found: Mapping[str, Any] = entry.get("archive") or entry.get("vcs") or entry.get("sdist") or wheels[0]
    return wheels[0] if entry.get("wheels") else found
