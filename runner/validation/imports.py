"""Which modules a bundle's code imports that are not in its venv, told from its pickle and the venv's files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.errors import RemoteError
from runner.inspecting import Overview
from runner.provision import Venv
from runner.text import one_line
from runner.validation.contents import DelayedImport

_ALWAYS_THERE: Final = frozenset({"benchmax", "cloudpickle", "__main__"})
_IMPORTS: Final = "it imports "
_MISSING: Final = re.compile(r"\bNo module named '([^']{1,200})'")
_ERROR: Final = re.compile(r"\bModuleNotFoundError\b|\bImportError\b")


class Site:
    """The modules that a venv has.

    Args:
        venv: The venv.
        overview: What the bundle brings along itself.
    """

    def __init__(self, venv: Venv, overview: Overview) -> None:
        self._folder = venv.path / "lib" / f"python{venv.python_version}" / "site-packages"
        self._brought = {name.partition(".")[0] for name in overview.modules}
        self._known: dict[str, bool] = {}

    def has(self, module: str) -> bool:
        """Whether the package that a module is in is there."""
        name = module.partition(".")[0]
        if name in sys.stdlib_module_names or name in _ALWAYS_THERE or name in self._brought:
            return True
        if not name.isidentifier():
            return False
        if name not in self._known:
            # an extension module's name has the series and the machine that it is for
            self._known[name] = (
                (self._folder / name).is_dir()
                or (self._folder / f"{name}.py").is_file()
                or any(True for _ in self._folder.glob(f"{name}.*so"))
            )
        return self._known[name]


def missing_module(error: RemoteError | str) -> str:
    """Return the module that code did not find, as an error tells it; empty for any other error."""
    # whatever it is wrapped in
    text = f"{error.remote_type}: {error.remote_message}" if isinstance(error, RemoteError) else error
    if not _ERROR.search(text):
        return ""
    found = _MISSING.search(text)
    return "" if found is None else one_line(found[1])


def undeclared(module: str, *, what: str, when: str) -> Finding:
    """Return the finding for a module that was not found when it was needed."""
    root = module.partition(".")[0]
    return Finding(
        severity="error",
        code="undeclared-dependency",
        what=what,
        message=f"{_IMPORTS}{module} {when}, which nothing it declares brings",
        fix=f"Declare what brings it (--pip {root}, if that is its name), or take your own module along: "
        f"--local-module {root}.",
    )


def delayed(missing: Sequence[DelayedImport]) -> list[Finding]:
    """Return findings for imports that run later: one for each module."""
    first = {one.module.partition(".")[0]: one for one in reversed(missing)}
    return [
        Finding(
            severity="warning",
            code="delayed-import",
            what=f"{one.function} → import {one.module}",
            message=f"{_IMPORTS}{one.module} when it runs, which nothing it declares brings",
            fix=f"Declare what brings it (--pip {root}, if that is its name), unless it is to do without.",
        )
        for root, one in sorted(first.items())
    ]


def without(findings: Iterable[Finding], told: Iterable[Finding]) -> list[Finding]:
    """Return the findings of `delayed` whose modules are not told of yet."""
    known = {_root(one) for one in told if one.code == "undeclared-dependency"}
    return [one for one in findings if _root(one) not in known]


def _root(finding: Finding) -> str:
    """The package that a finding of this module is about."""
    return finding.message.removeprefix(_IMPORTS).partition(" ")[0].partition(".")[0]
