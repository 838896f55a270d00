"""What packing and loading a bundle raise.

BundlingError
IncompatibleRuntimeError
├── IncompatiblePythonError
└── IncompatibleBenchmaxError
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Rule: TypeAlias = Literal["", "serialize", "local", "external", "delayed"]


class BundlingError(Exception):
    """Raised when a class cannot be packed, or when a bundle's pickle is corrupt or holds something else."""

    rule: Rule = ""
    """Which rule of packing refused the class; empty for everything else."""

    def by(self, rule: Rule) -> BundlingError:
        """Note the rule, and return the error to raise."""
        self.rule = rule
        return self


class IncompatibleRuntimeError(Exception):
    """Raised when a bundle was made for another runtime than this one; the subclasses say in what respect."""


class IncompatiblePythonError(IncompatibleRuntimeError):
    """Raised when a bundle was made by another Python series: its bytecode would load and then crash."""


class IncompatibleBenchmaxError(IncompatibleRuntimeError):
    """Raised when the benchmax series of a bundle differs from the installed one, or cannot be told."""
