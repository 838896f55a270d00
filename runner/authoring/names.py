"""What a project is called: from the one name that a person gives to the names that Python needs."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from runner.errors import UsageError

MAX_NAME_CHARS: Final = 64
"""Folder, file and class are named after it, and none of them should need a scroll bar."""

_WORDS: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_TAKEN: Final = frozenset({"conftest", "tests"})
"""Names that pytest and the project itself give to something else."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one project.

    Args:
        module: Its module, such as `word_count`.
        environment: Its environment's class, such as `WordCount`.
    """

    module: str
    environment: str

    @property
    def target(self) -> str:
        """What `benchmax bundle` is told."""
        return f"{self.module}.py:{self.environment}"


def names_for(name: str, *, used: Set[str] = frozenset()) -> Names:
    """Make the names of a project that a person calls `name`.

    Args:
        name: Words of ASCII letters and digits, joined by `-` or `_`; the first begins with a letter.
        used: Names that the project's module uses for something else, which its class cannot have.

    Raises:
        UsageError: no module can have that name, or another one that can be imported here has it.
    """
    if len(name) > MAX_NAME_CHARS or not _WORDS.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a project.",
            hint=f"Use up to {MAX_NAME_CHARS} letters, digits and single dashes, and begin with a letter: word-count.",
        )
    module = name.replace("-", "_").lower()
    # test_… is what pytest collects as tests
    if keyword.iskeyword(module) or module in _TAKEN or module.startswith("test_"):
        raise UsageError(
            f"{name!r} cannot be the name of a project: {module!r} means something else to Python or pytest.",
            hint="Choose another, such as word-count.",
        )
    if _importable(module):
        raise UsageError(
            f"{name!r} cannot be the name of a project: there is a module {module!r} that others import.",
            hint=f"Choose another, such as {name}-env.",
        )
    environment = "".join(word[0].upper() + word[1:] for word in re.split("[-_]", name))
    if environment in used or keyword.iskeyword(environment) or hasattr(builtins, environment):
        environment += "Env"
    return Names(module, environment)


def _importable(module: str) -> bool:
    """Whether this installation has a module of that name; a project's own would hide it or be hidden by it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        # there, but nothing that can be told about
        return True
