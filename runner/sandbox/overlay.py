"""A folder of the caller's that a worker may change without changing it: an overlay, whose writes land elsewhere.

Only an ordinary caller has it, since its workers are the user that the files belong to; to a worker of root's, which is
somebody else, no file of an overlay would be writable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """One folder, and where a worker has it.

    Args:
        lower: The caller's folder, absolute and without symbolic links.
        written: A folder with two empty ones in it, `upper` and `work`; what is written lands there.
        target: An empty folder, in its place.
    """

    lower: str
    written: str
    target: str

    def step(self) -> Mapping[str, object]:
        """What the launcher does for it."""
        return {
            "do": "overlay",
            "lower": self.lower,
            "upper": f"{self.written}/upper",
            "work": f"{self.written}/work",
            "target": self.target,
        }
