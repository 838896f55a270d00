"""Requirements whose address can hold something else tomorrow, so that a venv keeps what it was when it was made."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from packaging.requirements import Requirement

from runner.provision.index import redact_addresses

_COMMIT: Final = re.compile(r"@[0-9a-f]{40}(?:[0-9a-f]{24})?$")
_DIGEST: Final = re.compile(r"(?:^|&)(?:sha256|sha384|sha512)=[0-9a-f]{64,}(?:&|$)")


def moving_warnings(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return a warning for each requirement that names neither a commit nor a digest.

    Local files have none: their content is part of a venv's key.

    Args:
        requirements: PEP 508 requirements.
    """
    warnings = []
    for line in requirements:
        requirement = Requirement(line)
        if requirement.url is None:
            continue
        parts = urlsplit(requirement.url)
        if "+" in parts.scheme:
            fixed, what = _COMMIT.search(parts.path) is not None, "a commit in full"
        else:
            fixed, what = parts.scheme == "file" or _DIGEST.search(parts.fragment) is not None, "a digest (#sha256=…)"
        if not fixed:
            warnings.append(
                f"{requirement.name} comes from {redact_addresses(requirement.url)}, where something else may be "
                f"later: this venv keeps what was there when it was made. Lock the bundle, or name {what}."
            )
    return tuple(warnings)
