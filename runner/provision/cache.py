"""The folder where venvs, our own wheel and the installers' downloads are kept between runs.

Comes in: keys and what to remember. Goes out: whole venvs only. An entry is a folder per key; each attempt at
building it is a folder of its own inside, so that a survivor of a killed build never writes into a later one. The
manifest is written last, atomically, and names the attempt that succeeded; without it an entry does not exist.

Beside the folder of a finished attempt `NAME` lie `NAME.lease`, held by everyone who uses the venv, `NAME.files.json`
with what it consists of, and `NAME.compiled.json` with what was compiled since.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runner.errors import CacheError
from runner.provision.contents import Contents
from runner.provision.lease import Lease
from runner.provision.venv import Venv
from runner.sandbox.disk import remove

MANIFEST_FORMAT: Final = 3
CACHE_VARIABLE: Final = "BENCHMAX_CACHE_DIR"
LOCK_POLL_S: Final = 0.05
"""Between two looks at a lock that another process holds; builds take seconds."""

HOLD_TRIES: Final = 25
HOLD_PAUSE_S: Final = 0.002
"""For a venv whose lease somebody holds alone: whoever only looks is done at once, whoever removes goes on."""

_TAG: Final = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by benchmax; everything here can be made again.\n"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Cache:
    """A cache folder.

    Args:
        root: The folder. `None` takes the environment variable `BENCHMAX_CACHE_DIR`, and where that is not set the
            user's cache folder. It is made when something is first put into it.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root).expanduser().absolute() if root is not None else _default_root()

    def __repr__(self) -> str:
        return f"Cache({str(self.root)!r})"

    @property
    def venvs_dir(self) -> Path:
        """One folder per key."""
        return self.root / "venvs"

    @property
    def locks_dir(self) -> Path:
        """One lock file per key, outside the entries so that these can be removed while a lock is held."""
        return self.root / "locks"

    @property
    def wheels_dir(self) -> Path:
        """Wheels of this installation's own package, by content."""
        return self.root / "wheels"

    @property
    def uv_dir(self) -> Path:
        """Uv's own cache, of what was never built here; on the same file system as the venvs."""
        return self.root / "uv-wheels"

    @property
    def pip_dir(self) -> Path:
        """Pip's own cache, of what was never built here."""
        return self.root / "pip-wheels"

    @property
    def built_dir(self) -> Path:
        """Wheels that were built from sources, each by what it was built from."""
        return self.root / "built"

    @property
    def former_dirs(self) -> tuple[Path, ...]:
        """Installers' caches of earlier releases, into which builds could write; only ever removed."""
        return self.root / "uv", self.root / "pip"

    @property
    def virtualenv_dir(self) -> Path:
        """What virtualenv keeps about interpreters."""
        return self.root / "virtualenv"

    @property
    def tools_dir(self) -> Path:
        """Unpacked installers."""
        return self.root / "tools"

    @property
    def installers_file(self) -> Path:
        """Held by every installation, and alone by whoever cleans the installers' caches."""
        return self.locks_dir / "installers.lease"

    @property
    def interpreters_file(self) -> Path:
        """Facts about installed interpreters."""
        return self.root / "interpreters.json"

    def prepare(self) -> None:
        """Make the folders.

        Raises:
            CacheError: they cannot be made or written.
        """
        with self.boundary():
            for folder in (self.venvs_dir, self.locks_dir, self.wheels_dir, self.tools_dir):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.wheels_dir, self.tools_dir):
                # programs that run as another user read them, whatever the caller's umask is
                if folder.stat().st_mode & 0o555 != 0o555:
                    folder.chmod(0o755)
            tag = self.root / "CACHEDIR.TAG"
            if not tag.exists():
                tag.write_text(_TAG, encoding="ascii")

    @contextmanager
    def boundary(self) -> Iterator[None]:
        """Turn a file error on the cache into a `CacheError` that names the cache and the reason."""
        try:
            yield
        except OSError as error:
            in_the_way = error.errno in (errno.EEXIST, errno.ENOTDIR)
            reason = "a file is in its way" if in_the_way else error.strerror or str(error)
            raise self.error(reason, full=error.errno in _NO_SPACE) from error

    def error(self, reason: str, *, full: bool) -> CacheError:
        """Say what is wrong with the cache."""
        if full:
            return CacheError(
                f"the disk that holds the cache {self.root} is full: {reason}.",
                hint=f"Free some space, or set {CACHE_VARIABLE} to a folder on another disk.",
            )
        return CacheError(
            f"the cache {self.root} cannot be used: {reason}.", hint=f"Set {CACHE_VARIABLE} to a writable folder."
        )

    # -- small files -------------------------------------------------------------------------------------------

    def read_json(self, path: Path) -> Any:
        """Read a JSON file of the cache; one that is missing or broken reads as `None`, so it is made again."""
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError):
            return None

    def write_json(self, path: Path, content: object) -> None:
        """Write a JSON file so that a reader sees the old or the new content, never a part.

        Raises:
            CacheError: it cannot be written.
        """
        self.write(path, json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True).encode("utf-8"))

    def write(self, path: Path, data: bytes) -> None:
        """Write a file atomically.

        Raises:
            CacheError: it cannot be written.
        """
        with self.boundary():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(temporary).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise

    # -- entries -----------------------------------------------------------------------------------------------

    def find(self, key: str) -> Venv | None:
        """Return the venv of a key, with a lease on it, if it is whole and its base interpreter is still there.

        Looks at the records of its packages, not at every file: `verify` does that.
        """
        for _ in range(HOLD_TRIES):
            venv = self.described(key)
            if venv is None:
                return None
            try:
                lease = Lease.shared(lease_file(venv.path))
            except OSError:
                return None
            if lease is not None:
                # it may have been removed, or made again, between the two
                again = self.described(key)
                if again == venv:
                    return replace(venv, lease=lease)
                lease.release()
            time.sleep(HOLD_PAUSE_S)
        return None

    def described(self, key: str) -> Venv | None:
        """Return what the manifest of a key describes, if that is there; without a lease, so it may go any time."""
        manifest = self.read_json(self.venvs_dir / key / "manifest.json")
        if not isinstance(manifest, dict) or manifest.get("format") != MANIFEST_FORMAT:
            return None
        try:
            path = self.venvs_dir / key / _one_name(manifest["folder"])
            venv = Venv(
                key=key,
                path=path,
                python=path / "bin" / "python",
                python_version=manifest["python_version"],
                base_python=Path(manifest["base_python"]),
                base_prefix=Path(manifest["interpreter"]["prefix"]),
                packages=dict(manifest["packages"]),
                installer=manifest["installer"],
                warnings=tuple(manifest["warnings"]),
            )
            records = {path / name: (size, mtime) for name, (size, mtime) in manifest["records"].items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        # `exists` follows the link to the base interpreter
        there = venv.python.exists() and venv.base_python.exists()
        return venv if there and all(_as_it_was(file, *facts) for file, facts in records.items()) else None

    @contextmanager
    def attempt(self, key: str) -> Iterator[tuple[Path, Path]]:
        """Give the folders for one attempt at building an entry; the key's lock must be held.

        What earlier attempts left is removed first, except a venv in which something still runs. When the body
        raises, nothing of this one is left either.

        Yields:
            Where the venv goes, and a scratch folder that is removed in any case.

        Raises:
            CacheError: the entry cannot be written.
        """
        entry = self.venvs_dir / key
        venv, scratch = entry / secrets.token_hex(4), entry / f"work-{secrets.token_hex(4)}"
        with self.boundary():
            self.clear(key)
            entry.mkdir(parents=True, exist_ok=True)
            scratch.mkdir()
        try:
            yield venv, scratch
        except BaseException:
            discard(scratch)
            self.clear(key)
            raise
        finally:
            discard(scratch)

    def clear(self, key: str) -> bool:
        """Remove an entry; the key's lock must be held. A venv in which something still runs stays, out of use.

        Returns:
            Whether nothing of it is left.

        Raises:
            OSError: it cannot be removed.
        """
        entry = self.venvs_dir / key
        if not entry.is_dir():
            discard(entry)
            return True
        with contextlib.ExitStack() as held:
            in_use = set()
            for file in entry.glob("*.lease"):
                lease = Lease.exclusive(file)
                if lease is None:
                    in_use.add(file.stem)
                else:
                    held.enter_context(lease)
            # first of all, so that nobody takes it up while it is being removed
            (entry / "manifest.json").unlink(missing_ok=True)
            for old in entry.iterdir():
                if old.name.partition(".")[0] not in in_use:
                    discard(old)
        with contextlib.suppress(OSError):
            entry.rmdir()
        return not entry.exists()

    def commit(self, venv: Venv, contents: Contents, more: dict[str, object]) -> Venv:
        """Declare an attempt whole: from now on `find` returns it, and nothing writes to it any more.

        Args:
            venv: The finished venv.
            contents: What it consists of.
            more: Further facts for the manifest.

        Returns:
            The venv with a lease on it.

        Raises:
            CacheError: the manifest, or a file beside it, cannot be written.
        """
        with self.boundary():
            # escapes, since a package may hold files whose names are no text
            self.write(contents_file(venv.path), json.dumps(contents.to_json()).encode("ascii"))
            lease = Lease.shared(lease_file(venv.path), create=True)
        manifest = {
            **more,
            "format": MANIFEST_FORMAT,
            "key": venv.key,
            "folder": venv.path.name,
            "python_version": venv.python_version,
            "base_python": str(venv.base_python),
            "packages": dict(venv.packages),
            "installer": venv.installer,
            "warnings": list(venv.warnings),
            "records": contents.records,
        }
        self.write_json(self.venvs_dir / venv.key / "manifest.json", manifest)
        return replace(venv, lease=lease)

    @asynccontextmanager
    async def lock(self, key: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
        """Hold the lock of a key across processes; the system releases it when its holder dies.

        While it is held, the installers' caches are not cleaned either.

        Args:
            key: The entry.
            on_wait: Called once if another process holds the lock.

        Raises:
            CacheError: the lock file cannot be opened.
        """
        waited = False
        while True:
            with self.try_lock(key) as held:
                cleaning = self._installing() if held else None
                if cleaning is not None:
                    with cleaning:
                        yield
                    return
            if not waited:
                waited = True
                on_wait()
            await asyncio.sleep(LOCK_POLL_S)

    def _installing(self) -> Lease | None:
        with self.boundary():
            return Lease.shared(self.installers_file, create=True)

    @contextmanager
    def try_lock(self, key: str) -> Iterator[bool]:
        """Hold the lock of a key if nobody else does; say whether it is held.

        Raises:
            CacheError: the lock file cannot be opened.
        """
        with self.boundary():
            lock = Lease.exclusive(self.locks_dir / f"{key}.lock", create=True)
        with lock or contextlib.nullcontext():
            yield lock is not None


def lease_file(venv: Path) -> Path:
    """Return the file that is held by everyone who uses a venv."""
    return venv.with_name(f"{venv.name}.lease")


def contents_file(venv: Path) -> Path:
    """Return the file that says what a venv consists of."""
    return venv.with_name(f"{venv.name}.files.json")


def compiled_file(venv: Path) -> Path:
    """Return the file that says what was compiled in a venv after it was finished."""
    return venv.with_name(f"{venv.name}.compiled.json")


def discard(path: Path) -> None:
    """Remove a file or a whole folder; what cannot be removed stays and is in nobody's way."""
    if path.is_dir() and not path.is_symlink():
        # the folders of a finished venv are not writable, not even for their owner; those of a build are as its code
        # has left them
        remove(str(path))
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _default_root() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("benchmax")


def _as_it_was(file: Path, size: int, mtime_ns: int) -> bool:
    try:
        status = file.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, mtime_ns)


def _one_name(value: object) -> str:
    if not isinstance(value, str) or value in {"", ".", ".."} or "/" in value:
        raise ValueError(f"not a folder name: {value!r}")
    return value
