"""Why code of a bundle could not ask under a binding, so that nothing can be said of what it scores."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from runner.isolated import IsolatedEnvironment
from runner.text import one_line

_NOT_BOUND: Final = re.compile(r"No runtime model-auth provider is bound under '([^']{1,200})'")
_SHOWN: Final = 300


class Bindings:
    """What is bound, and what was refused.

    Args:
        env: The environment in which it is used.
        names: The bindings that the caller gave.
    """

    def __init__(self, env: IsolatedEnvironment, names: Collection[str]) -> None:
        self._env = env
        self._names = names

    def trouble(self, error: str) -> str:
        """Return why an error may come of a binding that is missing or was refused; empty where it does not.

        Args:
            error: What code of the bundle raised. It is believed in so far as it names a binding that is not there:
                whoever makes that up is not valid for it.
        """
        for entry in self._env.audit:
            if entry.binding is not None and not entry.answered:
                name, reason = one_line(entry.binding, 60), one_line(entry.reason, _SHOWN)
                return f"headers for the binding {name!r} were refused: {reason}"
        found = _NOT_BOUND.search(error)
        if found is None or found[1] in self._names:
            return ""
        name = one_line(found[1], 60)
        return f"nothing is bound to {name!r}: bind it with --auth {name}=env:VAR@URL"
