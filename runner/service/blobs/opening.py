"""A blob store from its URL."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from runner.errors import UsageError
from runner.service.blobs.disk import DiskBlobs
from runner.service.blobs.s3 import S3Blobs
from runner.service.blobs.store import BlobStore

FORMS: Final = "Give file:///FOLDER, a path, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME."


def open_blobs(url: str, *, spool: Path | None = None) -> BlobStore:
    """Open a blob store.

    Args:
        url: `file:///folder` or a path, or `s3://bucket/prefix?endpoint=…&region=…`, whose credentials are in the usual
            environment variables.
        spool: Folder for what is on its way to a bucket; one of the system's temporary folders when `None`.

    Raises:
        UsageError: the URL cannot be meant.
        StoreUnavailableError: the folder cannot be made.
    """
    if "://" not in url:
        if not url:
            raise UsageError("the blob store has no URL.", hint=FORMS)
        return DiskBlobs(Path(url).expanduser().absolute())
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise UsageError(f"the blob store {url!r} is no folder of this machine.", hint=FORMS)
        return DiskBlobs(Path(unquote(parts.path)))
    if parts.scheme != "s3":
        raise UsageError(f"there are no blob stores of the kind {parts.scheme}.", hint=FORMS)
    # a password in a URL ends up in logs
    if not parts.netloc or "@" in parts.netloc or ":" in parts.netloc or parts.fragment:
        raise UsageError("the blob store's URL must name a bucket, and nothing else before its path.", hint=FORMS)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if unknown:
        raise UsageError(f"the blob store's URL has an unknown option {unknown[0]!r}.", hint=FORMS)
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise UsageError(f"the blob store's endpoint {endpoint!r} is no http or https URL.", hint=FORMS)
    return S3Blobs(
        parts.netloc,
        unquote(parts.path).strip("/"),
        endpoint=endpoint,
        region=options.get("region"),
        spool=Path(tempfile.gettempdir()) / "benchmax-spool" if spool is None else spool,
    )
