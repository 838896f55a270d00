"""What goes by value and what by reference: cloudpickle's rule, told without pickling."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

from benchmax.bundle.capture.sources import SourceScope

_MADE_BY_PYTHON: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the type was made while running, as by a class statement."""


class Travel:
    """Says how functions, classes and modules travel.

    Args:
        registered: Names of the modules that the author passes along.
        scope: Says what is project-local.
        auto: Whether modules of the project go by value without being asked for.
    """

    def __init__(self, registered: Iterable[str], scope: SourceScope, *, auto: bool) -> None:
        self._registered = frozenset({*registered, "__main__"})
        self.scope = scope
        self._auto = auto
        self._standard_library = sysconfig.get_path("stdlib")

    def is_authors(self, file: str) -> bool:
        """Whether a file is the author's to change: neither Python's own nor an installed package's."""
        return not Path(file).is_relative_to(self._standard_library) and not any(
            Path(file).is_relative_to(site) for site in self.scope.sites
        )

    def is_by_value(self, module: str) -> bool:
        """Whether what a module defines goes by value."""
        if self._auto and self.scope.is_project_local(module):
            return True
        while module:
            if module in self._registered:
                return True
            module = module.rpartition(".")[0]
        return False

    def reference(self, value: FunctionType | type | ModuleType) -> str:
        """Return the module by which a value is imported where the bundle is loaded; empty if it goes by value."""
        if isinstance(value, ModuleType):
            name = value.__name__
            return "" if name not in sys.modules or self.is_by_value(name) else name
        if isinstance(value, type) and not value.__flags__ & _MADE_BY_PYTHON:
            # one of C, such as that of `vars(cls)`, which its module need not show
            return value.__module__
        module = getattr(value, "__module__", None)
        if not isinstance(module, str) or module not in sys.modules or not _is_there(module, value):
            # nobody could find it by its name
            return ""
        return "" if self.is_by_value(module) else module


def _is_there(module: str, value: FunctionType | type) -> bool:
    found: object = sys.modules[module]
    try:
        for part in value.__qualname__.split("."):
            found = getattr(found, part)
    except Exception:  # noqa: BLE001 - a module may answer in its own way for what it does not have
        return False
    return found is value
