"""A bundle in memory and the digest that identifies it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from benchmax.bundle.metadata import BundleMetadata

_DOMAIN: Final = b"benchmax.bundle.v1\0"


@dataclass(frozen=True)
class Bundle:
    """A packed environment: the pickle of `(environment class, constructor arguments)` and its metadata.

    Not slotted on purpose: its pickled state is a dict, which other releases read.

    Args:
        pickled: The pickle. Loading it runs code, see `load_bundle`.
        metadata: What has to be known before loading.

    Raises:
        TypeError: an argument has another type.
    """

    pickled: bytes
    metadata: BundleMetadata

    def __post_init__(self) -> None:
        _check("pickled", self.pickled, bytes)
        _check("metadata", self.metadata, BundleMetadata)


def bundle_digest(bundle: Bundle) -> str:
    """Return the SHA-256 that identifies this artifact, in lower-case hex.

    It identifies one artifact, not its source: packing the same class in two processes gives two digests.

    Raises:
        TypeError: not a `Bundle`.
    """
    _check("bundle", bundle, Bundle)
    digest = hashlib.sha256(_DOMAIN)
    for part in (bundle.pickled, bundle.metadata.to_json_bytes()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _check(name: str, value: object, expected: type) -> None:
    if not isinstance(value, expected):
        raise TypeError(f"{name} must be {expected.__name__}, got {type(value).__name__}.")
