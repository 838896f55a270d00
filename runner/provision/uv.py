"""uv as installer: resolves with `uv pip compile`, installs with `uv pip sync`, always without its configuration."""

from __future__ import annotations

import asyncio
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

from runner.errors import RequirementError
from runner.provision.cache import discard
from runner.provision.command import Finished
from runner.provision.diagnosis import Failure, InstallerFailedError, bare_name
from runner.provision.document import write_lock_text
from runner.provision.link_mode import link_mode
from runner.provision.lock import LOCK_NAME, MAX_LOCK_BYTES, Lock, from_folders, with_addresses
from runner.provision.place import MisplacedFileError, Place, read_inside
from runner.provision.refusals import meddled, missing_offline, nothing_so_old, relay_failure, wheels_only, with_network
from runner.provision.resolution import NOTHING, Resolution
from runner.provision.source_copies import with_copied_folders, with_copies, without_copies
from runner.provision.trial import trial_source
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

BUILDS: Final = "builds-v0"
"""Where uv makes the environments of builds, in its cache."""

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
        # where resolutions go on once one of them had to build something
        self._building: Place | None = None
        self._common = (*_EACH, *(("--offline",) if options.offline else ()))
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
        if self._space.options.only_binary:
            return await self._compile_at(self._place(), lines, ["--only-binary", ":all:", *words], excluded)
        if self._building is None and await self._can_be_kept_from_building():
            place = self._place()
            finished, resolution = await self._compile_at(place, lines, words, excluded)
            if str(place.downloads / BUILDS) not in finished.stderr:
                return finished, resolution
        if self._building is None:
            self._building = self._space.build_place([self._uv])
        return await self._compile_at(self._building, lines, words, excluded)

    async def _compile_at(
        self, place: Place, lines: Sequence[str], words: Sequence[str], excluded: AbstractSet[str]
    ) -> tuple[Finished, Resolution]:
        cache = self._space.cache
        lines, copies = await asyncio.to_thread(with_copies, lines, place, self._space)
        asked = place.give("requirements.in", "\n".join(lines) + "\n", cache)
        left_out = place.give("excluded.in", "".join(f"{name}\n" for name in sorted(excluded)), cache)
        lock = place.output(LOCK_NAME, cache)
        finished = await self._space.run(
            [
                *(str(self._uv), "pip", "compile", *self._common, "--cache-dir", str(place.downloads), *self._sources),
                *("--no-progress", "--no-header"),
                *("--python", str(self._space.interpreter.path), "--format", LOCK_NAME, "--quiet", *words),
                *(("--excludes", str(left_out)) if excluded else ()),
                *("--output-file", str(lock), str(asked)),
            ],
            phase="resolve",
            place=place,
            env=self._env,
        )
        if finished.code != 0:
            return finished, NOTHING
        try:
            text = read_inside(lock, place.work, MAX_LOCK_BYTES)
            data = Lock.parse(text).data if place.builds else tomllib.loads(text.decode())
        except (MisplacedFileError, RequirementError) as error:
            raise InstallerFailedError(meddled(str(error))) from None
        found = with_addresses(data, self._space.index.outward, folder=lock.parent)
        return finished, Resolution.from_data(without_copies(found, copies))

    def _place(self) -> Place:
        """Return where nothing is built, which uv is kept from by a file in the place of its folder for builds."""
        place = self._space.place(self._space.cache.uv_dir, [self._uv])
        with self._space.cache.boundary():
            stop = place.downloads / BUILDS
            if not stop.is_file():
                # made by somebody who used uv with this cache by hand
                discard(stop)
                stop.write_text("Nothing is built with this cache.\n", encoding="ascii")
        return place

    async def _can_be_kept_from_building(self) -> bool:
        """Whether this version of uv builds nothing there: it is tried once, with a package that can only be built."""
        cache = self._space.cache
        record = cache.tools_dir / f"uv-{self._version}.json"
        known = cache.read_json(record)
        if isinstance(known, dict) and isinstance(known.get("kept"), bool):
            return bool(known["kept"])
        place = self._place()
        ran = place.output("ran", cache)
        with cache.boundary():
            trial = place.given / "benchmax-trial-1.0.tar.gz"
            trial.write_bytes(trial_source(ran))
        asked = place.give("trial.in", f"benchmax-trial @ {trial.as_uri()}\n", cache)
        finished = await self._space.run(
            [
                *(str(self._uv), "pip", "compile", *_EACH, "--offline", "--cache-dir", str(place.downloads)),
                *("--python", str(self._space.interpreter.path), "--quiet", str(asked)),
            ],
            phase="resolve",
            place=place,
            quiet=True,
        )
        kept = finished.code != 0 and str(place.downloads / BUILDS) in finished.stderr and not ran.exists()
        if kept or ran.exists() or finished.code == 0:
            # whatever else went wrong says nothing about the next time
            cache.write_json(record, {"kept": kept})
        return kept

    async def install(self, lock: Resolution, *, python: Path) -> None:
        """See `Installer.install`."""
        options, cache = self._space.options, self._space.cache
        data = self._inward(lock.data)
        place = self._place()
        file = place.give("pylock.install.toml", write_lock_text(data), cache)
        with cache.boundary():
            mode = link_mode(self._space.scratch)
        words = [
            *(str(self._uv), "pip", "sync", *self._common, "--cache-dir", str(place.downloads), "--link-mode", mode),
            *("--only-binary", ":all:", "--preview-features", "pylock", "--python", str(python), str(file)),
        ]
        if options.offline:
            await self._check_cached(words, data, place)
        finished = await self._space.run(words, phase="install", place=place, env=self._env)
        if finished.code != 0:
            raise InstallerFailedError(self._diagnosed(finished))

    async def build(self, entry: Mapping[str, Any]) -> tuple[Place, Path]:
        """See `Installer.build`."""
        cache = self._space.cache
        place = self._space.build_place([self._uv])
        data = self._inward({"lock-version": "1.0", "created-by": "benchmax", "packages": [entry]})
        data = await asyncio.to_thread(with_copied_folders, data, place, self._space)
        file = place.give("pylock.build.toml", write_lock_text(data), cache)
        target = place.output("installed", cache)
        finished = await self._space.run(
            [
                *(str(self._uv), "pip", "sync", *self._common, "--cache-dir", str(place.downloads), *self._sources),
                *("--link-mode", "copy", "--target", str(target), "--preview-features", "pylock"),
                *("--python", str(self._space.interpreter.path), str(file)),
            ],
            phase="install",
            place=place,
            env=self._env,
        )
        if finished.code != 0:
            raise InstallerFailedError(self._diagnosed(finished))
        # what it has built lies in its cache, beside its source
        return place, next(place.downloads.glob("sdists-*"), place.downloads)

    def _inward(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a lock's content as uv has to be told it."""
        data = from_folders(data, self._space.options.link_folders)
        data = with_addresses(data, self._space.index.inward)
        return _with_index(data, self._space.index.installer_url)

    async def _check_cached(self, words: Sequence[str], data: Mapping[str, Any], place: Place) -> None:
        """Look for all that is missing at once: the installation itself would end at the first."""
        looked = await self._space.run(
            [*words, "--dry-run", "--verbose"], phase="install", place=place, env=self._env, quiet=True
        )
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
        return with_network(self._reason(finished), self._space)

    def _reason(self, finished: Finished) -> Failure:
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
