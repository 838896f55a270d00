"""Which modules of its venv a worker has loaded from source: what is worth compiling for the next start."""

from __future__ import annotations

import importlib.util
import os
import sys

from ..limits import MAX_LOADED_MODULES, MAX_MODULE_CHARS


def uncompiled_modules() -> list[str]:
    """List the modules that are loaded and have no compiled file.

    Returns:
        Paths of source files relative to the venv, at most `MAX_LOADED_MODULES`.
    """
    root = sys.prefix + os.sep
    found: list[str] = []
    for module in [*sys.modules.values()]:
        try:
            # not by getattr: a module may answer for names it does not have, and do anything to find out
            source = vars(module).get("__file__")
            if type(source) is not str or not source.startswith(root) or not source.endswith(".py"):
                continue
            path = source[len(root) :]
            compiled = importlib.util.cache_from_source(source)
            if len(path) <= MAX_MODULE_CHARS and path.isprintable() and not os.path.exists(compiled):  # noqa: PTH110
                found.append(path)
        except Exception:  # noqa: BLE001, S112 - anything may be put among the modules, and nothing here is needed
            continue
        if len(found) >= MAX_LOADED_MODULES:
            break
    return found
