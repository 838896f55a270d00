"""A package index on loopback with tiny wheels made on the spot, so that tests decide what exists.

Wheels hold one module named after the package; `LocalIndex` serves them as a PEP 503 index.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import io
import json
import re
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

_FIXED_TIME = (2020, 1, 1, 0, 0, 0)


def canonical(name: str) -> str:
    """The name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, kw_only=True)
class Package:
    """What one release of one package consists of; `files` are further files by their path in site-packages."""

    name: str
    version: str
    requires: Sequence[str] = ()
    requires_python: str = ""
    extras: Sequence[str] = ()
    tag: str = "py3-none-any"
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """Name of the one module every wheel holds."""
        return canonical(self.name).replace("-", "_")

    @property
    def wheel_name(self) -> str:
        """File name of the wheel."""
        return f"{self.module}-{self.version}-{self.tag}.whl"

    @property
    def sdist_name(self) -> str:
        """File name of the source distribution."""
        return f"{self.module}-{self.version}.tar.gz"

    @property
    def metadata(self) -> str:
        """The core metadata document."""
        lines = ["Metadata-Version: 2.1", f"Name: {self.name}", f"Version: {self.version}"]
        if self.requires_python:
            lines.append(f"Requires-Python: {self.requires_python}")
        lines += [f"Provides-Extra: {extra}" for extra in self.extras]
        lines += [f"Requires-Dist: {requirement}" for requirement in self.requires]
        return "\n".join(lines) + "\n"

    def wheel(self) -> bytes:
        """The wheel's bytes; equal packages give equal bytes."""
        info = f"{self.module}-{self.version}.dist-info"
        contents = {
            f"{self.module}.py": f"VERSION = {self.version!r}\n",
            **self.files,
            f"{info}/METADATA": self.metadata,
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {self.tag}\n",
        }
        record = []
        for path, text in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(text.encode())}")
        record.append(f"{info}/RECORD,,")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for path, text in {**contents, f"{info}/RECORD": "\n".join(record) + "\n"}.items():
                archive.writestr(zipfile.ZipInfo(path, _FIXED_TIME), text)
        return buffer.getvalue()

    def sdist(self, backend: str) -> bytes:
        """A source distribution whose build backend is the given in-tree module's source text."""
        root = f"{self.module}-{self.version}"
        contents = {
            "PKG-INFO": self.metadata,
            "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
            "backend.py": backend,
        }
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, text in contents.items():
                entry = tarfile.TarInfo(f"{root}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return buffer.getvalue()


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the folder, counts requests, and asks for basic authentication where the index has credentials."""

    server: _Server

    def do_GET(self) -> None:
        index = self.server.index
        index.requests.append(self.path)
        index.authorizations.append(self.headers.get("Authorization"))
        if index.credentials is not None:
            expected = "Basic " + base64.b64encode(":".join(index.credentials).encode()).decode()
            if self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="packages"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        if index.stall is not None and index.stall in self.path:
            index.stalled.set()
            index.resume.wait()
            self.close_connection = True
            return
        name = self.path.removeprefix("/simple/").strip("/")
        if index.uploaded and name in index.pages and "v1+json" in self.headers.get("Accept", ""):
            page = json.dumps(
                {"meta": {"api-version": "1.1"}, "name": name, "files": [*index.pages[name].values()]}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        if index.cut is not None and index.cut in self.path and Path(self.translate_path(self.path)).is_file():
            data = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        super().do_GET()

    def end_headers(self) -> None:
        # tests change what an index holds between two looks at it
        self.send_header("Cache-Control", "no-cache")
        file = Path(self.translate_path(self.path))
        if file.is_file():
            # pip keeps only what has one
            self.send_header("ETag", f'"{hashlib.sha256(file.read_bytes()).hexdigest()}"')
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        """Say nothing; the requests are in `LocalIndex.requests`."""


class _Server(http.server.ThreadingHTTPServer):
    index: LocalIndex


class LocalIndex:
    """A PEP 503 index in a folder, served on a free loopback port while the context is open.

    Args:
        root: Folder for the index's files.
        credentials: User name and password every request must carry; None for an open index.

    A file whose name is in `uploaded` has that upload time; these are told to those who read JSON.
    Requests whose path contains `stall` are never answered until `resume` is set; `stalled` is set when one arrives.
    Of files whose path contains `cut` only the first half is sent.
    """

    def __init__(self, root: Path, credentials: tuple[str, str] | None = None) -> None:
        self.root = root
        self.credentials = credentials
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.uploaded: dict[str, str] = {}
        self.pages: dict[str, dict[str, object]] = {}
        self.stall: str | None = None
        self.cut: str | None = None
        self.stalled = threading.Event()
        self.resume = threading.Event()
        (root / "simple").mkdir(parents=True, exist_ok=True)
        self._files: dict[str, dict[str, str]] = {}

    def add(
        self, name: str, version: str, requires: Sequence[str] = (), *, uploaded: str = "", **more: object
    ) -> Package:
        """Put one wheel on the index, uploaded at a moment such as `2026-01-31T12:00:00Z`."""
        package = Package(name=name, version=version, requires=tuple(requires), **more)  # type: ignore[arg-type]
        if uploaded:
            self.uploaded[package.wheel_name] = uploaded
        self.add_file(package, package.wheel_name, package.wheel())
        return package

    def add_sdist(self, name: str, version: str, backend: str, **more: object) -> Package:
        """Put one source distribution on the index."""
        package = Package(name=name, version=version, **more)  # type: ignore[arg-type]
        self.add_file(package, package.sdist_name, package.sdist(backend))
        return package

    def add_file(self, package: Package, file_name: str, data: bytes, *, digest: str | None = None) -> None:
        """Put any file on a package's page; `digest` replaces the true sha256."""
        folder = self._folder(package.name)
        (folder / file_name).write_bytes(data)
        sha256 = digest or hashlib.sha256(data).hexdigest()
        attributes = f'href="{file_name}#sha256={sha256}"'
        if package.requires_python:
            attributes += f' data-requires-python="{escape(package.requires_python)}"'
        facts = {"filename": file_name, "url": file_name, "hashes": {"sha256": sha256}}
        if file_name in self.uploaded:
            facts["upload-time"] = self.uploaded[file_name]
        self.pages.setdefault(canonical(package.name), {})[file_name] = facts
        self._list(package.name, file_name, f"<a {attributes}>{file_name}</a><br/>")

    def add_link(self, name: str, url: str, data: bytes) -> None:
        """Put a file that is served elsewhere on a package's page."""
        self._folder(name)
        file_name = url.rpartition("/")[2]
        sha256 = hashlib.sha256(data).hexdigest()
        self._list(name, file_name, f'<a href="{url}#sha256={sha256}">{file_name}</a><br/>')

    def _folder(self, name: str) -> Path:
        folder = self.root / "simple" / canonical(name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _list(self, name: str, file_name: str, link: str) -> None:
        links = self._files.setdefault(canonical(name), {})
        links[file_name] = link
        page = "<!DOCTYPE html><html><body>" + "\n".join(links.values()) + "</body></html>"
        (self._folder(name) / "index.html").write_text(page, encoding="utf-8")

    @property
    def url(self) -> str:
        """Address of the index, without credentials."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/simple"

    @property
    def url_with_credentials(self) -> str:
        """Address of the index with user name and password in it."""
        assert self.credentials is not None
        user, password = (quote(word, safe="") for word in self.credentials)
        return f"http://{user}:{password}@127.0.0.1:{self._server.server_address[1]}/simple"

    def __enter__(self) -> LocalIndex:
        handler = functools.partial(_Handler, directory=str(self.root))
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.index = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def local_index(root: Path, packages: Sequence[Package] = ()) -> Iterator[LocalIndex]:
    """Serve an index that holds the given packages."""
    with LocalIndex(root) as index:
        for package in packages:
            index.add_file(package, package.wheel_name, package.wheel())
        yield index
