"""Secrets that a bundle is given on purpose, as variables of its worker's environment.

Comes in: names and values. Goes out: the same, checked, with values that never show. Refuses: names that are none, or
that a worker's environment has of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from runner.environ import CERTIFICATES, PROXIES
from runner.errors import UsageError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS: Final = frozenset({"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "PWD", *CERTIFICATES})
_OURS_BEGIN: Final = ("PYTHON", "LD_", "GLIBC_")
"""Beginnings of names by which the interpreter and the loader of libraries take orders."""


class SecretVariables(Mapping[str, str]):
    """Variables by name; neither `repr` nor `str` shows their values.

    Args:
        variables: Values by name.

    Raises:
        UsageError: a name or a value cannot be that of a variable, or the name is taken. The text holds no value.
    """

    __slots__ = ("_values",)

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._values = dict(variables or {})
        given: Mapping[str, object] = self._values
        for name, value in given.items():
            check_name(name)
            if not isinstance(value, str) or not value or "\0" in value:
                raise UsageError(
                    f"the secret {name} has no value that a variable can have.",
                    hint="A value is a text that is not empty and holds no zero byte.",
                )

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SecretVariables({', '.join(self._values)})"


def check_name(name: object) -> None:
    """Check that a variable may have a name.

    Raises:
        UsageError: it is none, or one that a worker's environment has of its own.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} is not the name of a secret variable.",
            hint="Names have letters, digits and underscores, and no digit first.",
        )
    if name in _OURS or name.startswith(_OURS_BEGIN) or name.lower() in PROXIES:
        raise UsageError(
            f"the secret {name} would replace a variable that every worker has.", hint="Give it another name."
        )
