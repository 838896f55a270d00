"""pip as installer, run from the wheel that virtualenv carries, never from the venv it fills."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from runner.errors import ProvisionError, RequirementError
from runner.limits import MIB
from runner.provision.cache import Cache
from runner.provision.command import Finished
from runner.provision.diagnosis import Failure, InstallerFailedError, bare_name
from runner.provision.document import write_lock_text
from runner.provision.gate import REFUSED
from runner.provision.lock import Lock, from_folders, with_addresses
from runner.provision.pip_output import diagnose, missing_package
from runner.provision.place import MisplacedFileError, Place, read_inside
from runner.provision.progress import Phase
from runner.provision.refusals import meddled, missing_offline, nothing_so_old, relay_failure, wheels_only, with_network
from runner.provision.resolution import NOTHING, Resolution
from runner.provision.source_copies import with_copied_folders, with_copies, without_copies
from runner.provision.workspace import Workspace

GATE: Final = Path(__file__).with_name("gate.py")
BUILD_LOCK: Final = "pylock.build.toml"
MAX_REPORT_BYTES: Final = 64 * MIB
"""A report has the metadata of each package, descriptions included."""

_NO_DATES: Final = re.compile(r"Index \S+/([^/\s]+)/? does not provide upload-time metadata")
OLDEST: Final = Version("26.1")
"""Older ones cannot forbid prereleases of one package, nor install from a PEP 751 lock."""


class Pip:
    """pip for one build.

    Raises:
        ProvisionError: virtualenv carries no pip that is new enough.
        CacheError: the cache cannot be written.
    """

    def __init__(self, workspace: Workspace) -> None:
        # heavy, and needed only when a venv is built with pip
        from virtualenv.seed.wheels.embed import get_embed_wheel

        wheel = get_embed_wheel("pip", workspace.interpreter.series)
        if wheel is None or Version(wheel.version) < OLDEST:
            found = "none" if wheel is None else wheel.version
            raise ProvisionError(
                f"virtualenv carries no pip {OLDEST} or newer for Python {workspace.interpreter.series} ({found}).",
                hint="Upgrade virtualenv, or install uv.",
            )
        self._version = wheel.version
        self._space = workspace
        self._folder = _unpacked(Path(wheel.path), workspace.cache)
        # where resolutions go on once one of them had to build something
        self._building: Place | None = None

    @property
    def title(self) -> str:
        """Name and version."""
        return f"pip {self._version}"

    @property
    def locks_all_platforms(self) -> bool:
        """Whether `universal` resolutions hold for other kinds of machines."""
        return False

    async def resolve(
        self,
        lines: Sequence[str],
        *,
        allowed: AbstractSet[str],
        forbidden: AbstractSet[str],
        follow_dependencies: bool,
        universal: bool = False,
    ) -> Resolution:
        """See `Installer.resolve`; pip resolves for this machine alone, `universal` or not."""
        words = [
            *([] if follow_dependencies else ["--no-deps"]),
            *([f"--all-releases={','.join(sorted(allowed))}"] if allowed else []),
            *([f"--only-final={','.join(sorted(forbidden))}"] if forbidden else []),
        ]
        options = self._space.options
        left, lacking, said = list(lines), set[str](), ""
        while True:
            finished, resolution = await self._dry_run(words, left)
            if finished.code == 0 and not lacking:
                return resolution
            said = said or finished.output
            name = None if finished.code == 0 else missing_package(finished.output)
            # of what may be had only as a final release, something is there
            if name is not None and bare_name(name) not in forbidden and await self._is_lacking(name, finished):
                lacking.add(name)
                fewer = [line for line in left if canonicalize_name(Requirement(line).name) != bare_name(name)]
                if len(fewer) < len(left):
                    # go on without it, for the sake of naming all
                    left = fewer
                    continue
            if lacking:
                refuse = missing_offline if options.offline else wheels_only
                raise InstallerFailedError(refuse(lacking, self._space, said))
            await self._fail(finished)

    async def _dry_run(self, words: Sequence[str], lines: Sequence[str]) -> tuple[Finished, Resolution]:
        if self._building is None:
            finished, resolution = await self._dry_run_at(self._place(), words, lines)
            if REFUSED not in finished.output:
                return finished, resolution
            self._building = self._build_place()
        return await self._dry_run_at(self._building, words, lines)

    async def _dry_run_at(
        self, place: Place, words: Sequence[str], lines: Sequence[str]
    ) -> tuple[Finished, Resolution]:
        cache = self._space.cache
        lines, copies = await asyncio.to_thread(with_copies, lines, place, self._space)
        report = place.output("report.json", cache)
        finished = await self._run(
            "install",
            *("--dry-run", "--ignore-installed", "--report", str(report), "--progress-bar", "off"),
            *(*self._sources, *words),
            # as words, not in a file: there pip would replace ${NAME} by the value of a variable
            *lines,
            phase="resolve",
            place=place,
        )
        if finished.code != 0 or not report.exists():
            return finished, NOTHING
        try:
            made = Resolution.from_pip_report(json.loads(read_inside(report, place.work, MAX_REPORT_BYTES)))
            if place.builds:
                made = Resolution.from_data(Lock.parse(made.lock.encode()).data)
        except (MisplacedFileError, RequirementError) as error:
            raise InstallerFailedError(meddled(str(error))) from None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise InstallerFailedError(meddled(f"pip's report is not one: {type(error).__name__}")) from None
        data = with_addresses(made.data, self._space.index.outward)
        return finished, Resolution.from_data(without_copies(data, copies))

    async def _is_lacking(self, name: str, finished: Finished) -> bool:
        """Whether the options are what keeps pip from getting a package."""
        if self._space.options.offline:
            return True
        if not self._space.options.only_binary or not re.search(r"\(from versions: none\)", finished.output):
            return False
        sources = await self._run("index", "versions", name, *self._sources_of_all, phase="resolve", quiet=True)
        return sources.code == 0

    async def install(self, lock: Resolution, *, python: Path) -> None:
        """See `Installer.install`."""
        data = self._inward(lock.data)
        if self._space.options.offline:
            data = await asyncio.to_thread(self._from_cache, data, lock.packages)
        place = self._place()
        file = place.give("pylock.install.toml", write_lock_text(data), self._space.cache)
        finished = await self._run(
            "install",
            *("--no-deps", "--no-compile", "--no-warn-script-location", "--progress-bar", "off"),
            *("--only-binary=:all:", "--root-user-action", "ignore", "--requirement", str(file)),
            phase="install",
            place=place,
            python=python,
        )
        if finished.code != 0:
            await self._fail(finished)

    async def build(self, entry: Mapping[str, Any]) -> tuple[Place, Path]:
        """See `Installer.build`."""
        cache = self._space.cache
        place = self._build_place()
        data = self._inward({"lock-version": "1.0", "created-by": "benchmax", "packages": [entry]})
        data = await asyncio.to_thread(with_copied_folders, data, place, self._space)
        file = place.give(BUILD_LOCK, write_lock_text(data), cache)
        wheels = place.output("wheels", cache)
        finished = await self._run(
            "wheel",
            *("--no-deps", "--progress-bar", "off", "--wheel-dir", str(wheels), *self._sources),
            *("--requirement", str(file)),
            phase="install",
            place=place,
        )
        if finished.code != 0:
            # not who wants it
            said = replace(finished, stdout=finished.stdout.replace(f" (from {BUILD_LOCK})", ""))
            await self._fail(said)
        return place, wheels

    def _inward(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a lock's content as pip has to be told it."""
        return with_addresses(from_folders(data, self._space.options.link_folders), self._space.index.inward)

    def _place(self) -> Place:
        """Return where nothing is built; pip writes its own compiled modules beside itself."""
        place = self._space.place(self._space.cache.pip_dir, [GATE])
        policy = place.policy
        if policy.level != "off":
            policy = replace(policy, shared=(*policy.shared, str(self._folder), str(self._folder.resolve())))
        return replace(place, policy=policy)

    def _build_place(self) -> Place:
        return self._space.build_place([self._folder])

    def _from_cache(self, data: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, Any]:
        """Take files out of pip's cache, which pip itself reads only with the index at hand; say all it lacks."""
        fits = set(wheel_tags(self._space.interpreter.series))
        missing, packages = [], []
        for entry in data.get("packages", ()):
            name = canonicalize_name(entry["name"])
            if name not in wanted:
                continue
            files = [*entry.get("wheels", ()), *([entry["archive"]] if "archive" in entry else ())]
            there = [local for file in files if (local := self._cached(file)) is not None and _fits(local, fits)]
            if "archive" in entry and there:
                packages.append({**entry, "archive": there[-1]})
            elif there:
                packages.append({**entry, "wheels": there})
            elif "path" in entry.get("sdist", {}) or "directory" in entry:
                packages.append(entry)
            else:
                missing.append(f"{name}=={entry['version']}" if "version" in entry else name)
        if missing:
            raise InstallerFailedError(missing_offline(missing, self._space))
        # pip refuses a package with a source and wheels of which none fits, so only what fits is left
        kept = [{key: value for key, value in p.items() if key != "sdist" or "wheels" not in p} for p in packages]
        return {**data, "packages": kept}

    def _cached(self, file: Mapping[str, Any]) -> dict[str, Any] | None:
        if "path" in file:
            return dict(file) if Path(file["path"]).exists() else None
        url = file.get("url", "")
        # as pip names files of its cache
        key = hashlib.sha224(url.encode()).hexdigest()
        body = self._space.cache.pip_dir.joinpath("http-v2", *key[:5], f"{key}.body")
        try:
            content = body.read_bytes()
        except OSError:
            return None
        if not all(hashlib.new(name, content).hexdigest() == digest for name, digest in file["hashes"].items()):
            return None
        place = self._space.scratch / "files" / key[:16] / unquote(urlsplit(url).path).rpartition("/")[2]
        with self._space.cache.boundary():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        return {**{name: value for name, value in file.items() if name != "url"}, "path": str(place)}

    async def has_final_release(self, name: str) -> bool:
        """Whether the index has any release of a package that is not a prerelease, for whatever Python.

        Raises:
            InstallerFailedError: the index does not answer.
            InstallTimeoutError: a deadline passed.
        """
        words = ("--json", "--ignore-requires-python", *self._sources_of_all)
        finished = await self._run("index", "versions", name, *words, phase="resolve", quiet=True)
        if finished.code == 0:
            return bool(json.loads(finished.stdout)["versions"])
        failure = diagnose(finished, self._space)
        if failure.kind in ("unknown-package", "no-version", "no-wheel"):
            return False
        raise InstallerFailedError(with_network(failure, self._space))

    async def _fail(self, finished: Finished) -> NoReturn:
        failure = relay_failure(self._space, finished.output)
        if failure is None and self._space.options.cutoff is not None:
            failure = await self._too_new(finished)
        if failure is None:
            failure = diagnose(finished, self._space)
            name = missing_package(finished.output)
            if failure.kind == "unknown-package" and name is not None:
                # pip says the same for a name nobody took, a refused login and wheels for other Pythons; its log tells
                closer = await self._run("index", "versions", name, "-vv", phase="resolve", quiet=True)
                failure = diagnose(finished, self._space, log=closer.output)
        raise InstallerFailedError(with_network(failure, self._space))

    async def _too_new(self, finished: Finished) -> Failure | None:
        """Recognise a package of which there is nothing old enough, or of which no dates are known."""
        if match := _NO_DATES.search(finished.output):
            return nothing_so_old(match[1], self._space, finished.output)
        name = missing_package(finished.output)
        if name is None or "(from versions: none)" not in finished.output:
            return None
        links = [f"--find-links={place}" for place in self._space.options.find_links]
        younger = await self._run("index", "versions", name, *links, "--pre", phase="resolve", quiet=True)
        return nothing_so_old(name, self._space, finished.output) if younger.code == 0 else None

    @property
    def _sources(self) -> list[str]:
        return [*self._sources_of_all, *(["--only-binary=:all:"] if self._space.options.only_binary else [])]

    @property
    def _sources_of_all(self) -> list[str]:
        options = self._space.options
        return [
            *(f"--find-links={place}" for place in options.find_links),
            *([f"--uploaded-prior-to={options.cutoff}"] if options.cutoff is not None else []),
        ]

    async def _run(
        self,
        command: str,
        *words: str,
        phase: Phase,
        place: Place | None = None,
        python: Path | None = None,
        quiet: bool = False,
    ) -> Finished:
        index, relay = self._space.index, self._space.relay
        place = place or self._place()
        trusted = ["--trusted-host", index.plain_http_host] if index.plain_http_host is not None else []
        pip = [str(self._folder / "pip")] if place.builds else [str(GATE), str(self._folder)]
        return await self._space.run(
            [
                *(str(python or self._space.interpreter.path), "-I", *pip, command),
                *("--no-input", "--no-color", "--disable-pip-version-check", "--retries", "2", *trusted),
                *("--keyring-provider", "disabled", *(["--no-index"] if self._space.options.offline else [])),
                *("--cache-dir", str(place.downloads), *words),
            ],
            phase=phase,
            place=place,
            quiet=quiet,
            # in the environment, since every process on the machine can read a command line; no file is read
            env={
                "PIP_CONFIG_FILE": "/dev/null",
                "PIP_INDEX_URL": index.installer_url,
                **(relay.environment() if relay is not None else {}),
            },
        )


def wheel_tags(series: str) -> Iterator[Tag]:
    """List what wheels may be tagged with for CPython of a series on this machine, the best first."""
    version = tuple(map(int, series.split(".")))
    yield from cpython_tags(version)
    yield from compatible_tags(version, interpreter=f"cp{version[0]}{version[1]}")


def _fits(file: Mapping[str, Any], tags: AbstractSet[Tag]) -> bool:
    name = Path(file["path"]).name
    if not name.endswith(".whl"):
        return True
    try:
        return not parse_wheel_filename(name)[3].isdisjoint(tags)
    except InvalidWheelFilename:
        return False


def _unpacked(wheel: Path, cache: Cache) -> Path:
    """Unpack pip into the cache once: out of the wheel, every start would compile all of it again."""
    folder = cache.tools_dir / wheel.stem
    if not folder.exists():
        with cache.boundary(), tempfile.TemporaryDirectory(dir=cache.tools_dir, prefix=".new-") as scratch:
            unpacked = Path(scratch) / "pip"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unpacked)
            for place, _, names in os.walk(unpacked):
                # a build may use it as another user
                os.chmod(place, 0o755)  # noqa: PTH101, S103 - many, given as text; they hold pip
                for name in names:
                    os.chmod(f"{place}/{name}", 0o644)  # noqa: PTH101 - as above
            try:
                unpacked.rename(folder)
            except OSError:
                # another process was quicker
                if not folder.exists():
                    raise
    return folder
