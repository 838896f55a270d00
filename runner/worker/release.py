"""Which release of benchmax is in this venv."""

from __future__ import annotations

from pathlib import Path

import benchmax


def benchmax_version() -> str:
    """Return the version of the installed distribution, from the name of its folder where that says it."""
    # a package or, in other releases, a namespace of one folder
    folders = [*Path(next(iter(benchmax.__path__))).parent.glob("benchmax-*.dist-info")]
    if len(folders) == 1:
        return folders[0].stem.removeprefix("benchmax-")
    # takes longer to load than all else that a worker loads of the standard library
    import importlib.metadata

    return importlib.metadata.version("benchmax")
