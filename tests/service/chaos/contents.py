"""Reads blobs through their store and tells what is wrong with them.

Run as a program, with the store's URL, digests and secrets as JSON, it does so from where it runs and prints that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping

from runner.service.blobs.opening import open_blobs
from runner.service.blobs.store import BlobMissingError


async def wrong(url: str, digests: Iterable[str], secrets: Mapping[str, str]) -> list[str]:
    """Return a line for each blob that is missing, has other content than its name says, or tells a secret."""
    found = []
    blobs = open_blobs(url)
    try:
        for digest in digests:
            try:
                content = b"".join([piece async for piece in blobs.open(digest)])
            except BlobMissingError:
                found.append(f"{digest} is missing")
                continue
            if hashlib.sha256(content).hexdigest() != digest:
                found.append(f"{digest} has other content")
            found += [f"{digest} tells {what}" for what, secret in secrets.items() if secret.encode() in content]
    finally:
        await blobs.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(wrong(**json.loads(sys.stdin.read())))))
