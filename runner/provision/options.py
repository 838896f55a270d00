"""How packages are looked for and chosen: one value that is passed from the caller down to the installers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final, Literal, get_args
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidName, canonicalize_name

from runner.errors import UsageError
from runner.provision.index import Indexes, redact_addresses
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.levels import AUTO, LEVELS

Choice = Literal["auto", "uv", "pip"]
PrereleaseMode = Literal["default", "explicit"]

SANDBOXES: Final = (AUTO, *LEVELS)
_ARCHIVES: Final = (".whl", ".tar.gz", ".zip")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraIndex:
    """An index for a few packages, which come from there and from nowhere else.

    Args:
        names: The packages.
        url: Its address, possibly with credentials; never shown.

    Raises:
        UsageError: there is no name, or one that no package can have.
    """

    names: tuple[str, ...]
    url: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            names = tuple(sorted({canonicalize_name(name.strip(), validate=True) for name in self.names}))
        except InvalidName:
            raise UsageError(
                f"an extra index is meant for packages, but {', '.join(self.names)!r} are not names of some.",
                hint="It looks like NAME,NAME=https://host/simple.",
            ) from None
        if not names:
            raise UsageError(
                "an extra index names no package.",
                hint="Name those that come from it: NAME,NAME=https://host/simple.",
            )
        object.__setattr__(self, "names", names)

    @classmethod
    def parse(cls, text: str) -> ExtraIndex:
        """Read `NAME[,NAME…]=URL`.

        Raises:
            UsageError: it is not of that form. The text holds nothing of the address.
        """
        names, equals, url = text.partition("=")
        if not equals or "/" in names or not url.strip():
            raise UsageError(
                "an extra index is not of the form NAME[,NAME…]=URL.",
                hint="It looks like my-package=https://host/simple; no other package is looked for there.",
            )
        return cls(names=tuple(names.split(",")), url=url.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionOptions:
    """How a venv's packages are looked for and chosen.

    Args:
        index_url: Package index; `None` takes the environment variable `BENCHMAX_INDEX_URL`, else the Python Package
            Index. A user name and password in it go to that index and to nobody else.
        extra_indexes: Further indexes, each for the packages it names.
        find_links: Folders, files or pages with links in which packages are looked for besides the index.
        only_binary: Take wheels alone; nothing is built from source.
        offline: Use only what the cache, `find_links` and local files hold.
        exclude_newer: Take no file that was uploaded after this day (UTC).
        prerelease: `default`: a prerelease is taken if the requirements list it, or its package has no other
            release. `explicit`: only if they list it.
        lock: A `pylock.toml` to install from. Nothing is resolved then.
        locked: Whether there must be a lock.
        installer: `uv`, `pip`, or `auto` for uv where there is one.
        sandbox: How installers and builds are confined: a level, or `auto` for the strongest there is.
        file_hosts: Hosts that files of packages come from beside the index's own, as `HOST` or `HOST:PORT`.

    Raises:
        UsageError: a value cannot be meant.
    """

    index_url: str | None = field(default=None, repr=False)
    extra_indexes: tuple[ExtraIndex, ...] = ()
    find_links: tuple[str, ...] = ()
    only_binary: bool = False
    offline: bool = False
    exclude_newer: date | None = None
    prerelease: PrereleaseMode = "default"
    lock: Path | None = None
    locked: bool = False
    installer: Choice = "auto"
    sandbox: str = "auto"
    file_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.installer not in get_args(Choice):
            raise UsageError(f"installer {self.installer!r} is not known.", hint="Use one of: auto, uv, pip.")
        if self.sandbox not in SANDBOXES:
            raise UsageError(f"sandbox {self.sandbox!r} is not known.", hint=f"Use one of: {', '.join(SANDBOXES)}.")
        if self.prerelease not in get_args(PrereleaseMode):
            raise UsageError(
                f"prerelease mode {self.prerelease!r} is not known.", hint="Use one of: default, explicit."
            )
        for name in ("find_links", "extra_indexes", "file_hosts"):
            if not isinstance(getattr(self, name), tuple):
                raise TypeError(f"{name} must be a tuple, got {type(getattr(self, name)).__name__}.")
        if isinstance(self.exclude_newer, datetime) or not isinstance(self.exclude_newer, date | None):
            raise TypeError(f"exclude_newer must be a date, got {type(self.exclude_newer).__name__}.")
        object.__setattr__(self, "find_links", tuple(_checked_links(place) for place in self.find_links))
        object.__setattr__(self, "file_hosts", tuple(map(_checked_host, self.file_hosts)))
        self.indexes()

    def indexes(self) -> Indexes:
        """Return where packages come from.

        Raises:
            UsageError: an address is not that of an index.
        """
        return Indexes.of(self.index_url, [(extra.names, extra.url) for extra in self.extra_indexes])

    def for_tools(self) -> ProvisionOptions:
        """Return the same for packages of the runner's own choice, which a bundle's lock and dates do not concern."""
        return replace(self, lock=None, locked=False, exclude_newer=None, prerelease="default")

    @property
    def cutoff(self) -> str | None:
        """The moment before which files must have been uploaded, as both installers read it."""
        if self.exclude_newer is None:
            return None
        after = datetime.combine(self.exclude_newer + timedelta(days=1), time(), tzinfo=UTC)
        return after.strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def local_links(self) -> tuple[Path, ...]:
        """The files and folders of this machine among `find_links`."""
        return tuple(path for place in self.find_links if (path := _local(place)) is not None)

    @property
    def link_folders(self) -> tuple[Path, ...]:
        """The folders of this machine among `find_links`."""
        return tuple(path for path in self.local_links if path.is_dir())

    def key_inputs(self) -> Mapping[str, object]:
        """Return what changes which packages a resolution gives, for a venv's key."""
        indexes = self.indexes()
        return {
            "index": indexes.public_url,
            "extra_indexes": indexes.public_scoped,
            "find_links": {place: _listing(place) for place in self.find_links},
            "exclude_newer": None if self.exclude_newer is None else self.exclude_newer.isoformat(),
            "prerelease": self.prerelease,
        }


def _checked_links(place: str) -> str:
    scheme = urlsplit(place).scheme.lower()
    if scheme in ("http", "https"):
        if "@" in urlsplit(place).netloc:
            raise UsageError(
                f"find-links {redact_addresses(place)} holds a user name or a password.",
                hint="Use an index with credentials (--index-url or --extra-index) instead.",
            )
        return place
    path = _local(place)
    if path is None or not path.exists():
        raise UsageError(f"find-links {place}: there is no such file or folder.", hint="Name a folder of wheels.")
    return str(path.absolute())


def _checked_host(text: str) -> str:
    name, colon, port = text.strip().rpartition(":") if re.search(r":\d+$", text.strip()) else (text.strip(), "", "443")
    try:
        Endpoint(name.removeprefix("[").removesuffix("]"), int(port))
    except ValueError as error:
        raise UsageError(
            f"file host {text!r} is not one: {error}.", hint="It looks like files.example or files.example:8443."
        ) from None
    return f"{name.lower()}{colon}{port if colon else ''}"


def _local(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme.lower() in ("http", "https"):
        return None
    return Path(unquote(parts.path) if parts.scheme.lower() == "file" else place).expanduser()


def _listing(place: str) -> list[list[object]]:
    """Describe what a folder offers: it may offer something else tomorrow, under the same name."""
    path = _local(place)
    if path is None:
        return []
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return [
            [file.name, file.stat().st_size, file.stat().st_mtime_ns]
            for file in files
            if file.name.endswith(_ARCHIVES) or file == path
        ]
    except OSError as error:
        raise UsageError(f"find-links {place} cannot be read: {error.strerror}.") from error
