"""Style and scripts of the pages: kept in memory, served below a digest of all of them, so that they may be kept.

The palette, tables and elements are those of the report's page; there is no second style.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from runner.report.page.document import ASSETS as SHARED
from runner.service.http.errors import not_found

OWN: Final = Path(__file__).parent / "static"

STYLE: Final = "style.css"
SCRIPTS: Final = ("page", "elements", "swapping", "stream", "live", "listing", "sending", "digest")
EXPORTED: Final = ("button", "counted", "el", "number", "oneLine", "seconds", "shown")
"""Of the report's elements, which are no module there."""

TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Assets:
    """Files that pages load.

    Args:
        digest: Of all of them: a part of their addresses.
        contents: By name.
    """

    digest: str
    contents: Mapping[str, bytes]

    def address(self, name: str) -> str:
        """Return where one is served.

        Raises:
            KeyError: there is none of that name.
        """
        if name not in self.contents:
            raise KeyError(name)
        return f"/static/{self.digest}/{name}"

    @property
    def scripts(self) -> list[str]:
        """The addresses of all scripts."""
        return [self.address(name) for name in self.contents if name.endswith(".js")]


@functools.cache
def assets() -> Assets:
    """Return the files, read once."""
    contents = {STYLE: _read(SHARED / "base.css") + _read(OWN / "service.css")}
    for name in SCRIPTS:
        contents[f"{name}.js"] = _elements() if name == "elements" else _read(OWN / f"{name}.js")
    whole = hashlib.sha256()
    for name, content in contents.items():
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(whole.hexdigest()[:16], contents)


@router.get("/static/{digest}/{name}")
async def get_asset(digest: str, name: str) -> Response:
    """Return one file; browsers need never ask for it again."""
    found = assets()
    if digest != found.digest or name not in found.contents:
        raise not_found("such file")
    return Response(
        found.contents[name],
        headers={"Cache-Control": "public, max-age=31536000, immutable"},
        media_type=TYPES[Path(name).suffix],
    )


def _elements() -> bytes:
    return _read(SHARED / "elements.js") + f"\nexport {{ {', '.join(EXPORTED)} }};\n".encode()


def _read(path: Path) -> bytes:
    return path.read_bytes()
