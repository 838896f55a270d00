"""Credentials of the command line: named there by variables of the environment, never written out."""

from __future__ import annotations

import os
import re

from benchmax.auth import StaticBearerAuth
from runner.broker import Binding
from runner.errors import UsageError
from runner.variables import SecretVariables, check_name


def bindings(texts: list[str]) -> dict[str, Binding]:
    """Read `NAME=env:VAR@URL` arguments.

    Raises:
        UsageError: one is not of that form, its variable is not set, or a name is given twice.
    """
    found: dict[str, Binding] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        variable, at, url = rest.partition("@")
        if not name.strip() or not equals or not variable.startswith("env:") or not at:
            # what stands for the variable may be the secret itself
            raise UsageError(
                f"--auth {f'{name}=' if equals else ''}… is not of the form NAME=env:VAR@URL.",
                hint="It looks like --auth judge=env:JUDGE_KEY@https://judge.example/v1.",
            )
        if name in found:
            raise UsageError(f"--auth {name} is given twice.", hint="Leave one of them out.")
        auth = secret(variable.removeprefix("env:"), "--auth")
        try:
            found[name] = Binding(auth, urls=[url])
        except ValueError as error:
            raise UsageError(f"--auth {name}: {error}.") from error
    return found


def secret_variables(texts: list[str]) -> SecretVariables:
    """Read `NAME=env:VAR` arguments.

    Raises:
        UsageError: one is not of that form, its variable is not set, or a name is given twice or taken.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not rest.startswith("env:"):
            # what stands for the variable may be the secret itself
            raise UsageError(
                f"--secret {f'{name}=' if equals else ''}… is not of the form NAME=env:VAR.",
                hint="It looks like --secret DATABASE_URL=env:DATABASE_URL.",
            )
        check_name(name)
        if name in found:
            raise UsageError(f"--secret {name} is given twice.", hint="Leave one of them out.")
        found[name] = variable(rest.removeprefix("env:"), "--secret")
    return SecretVariables(found)


def variable(name: str, option: str) -> str:
    """Read a variable of the environment that has to be there.

    Raises:
        UsageError: it is not set, or empty. The text never holds its value.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UsageError(
            f"{option} wants the name of an environment variable, such as API_KEY.",
            hint="Put the value itself into that variable, not on the command line.",
        )
    value = os.environ.get(name)
    if value is None or not value.strip():
        raise UsageError(f"{option}: the environment variable {name} is not set.", hint="Export it first.")
    return value


def secret(name: str, option: str) -> StaticBearerAuth:
    """Make a credential source of a variable of the environment.

    Raises:
        UsageError: the variable is not set, empty, or cannot be a credential. The text never holds its value.
    """
    value = variable(name, option)
    if not (value.isascii() and value.isprintable()):
        raise UsageError(
            f"{option}: the environment variable {name} holds characters that no header can carry.",
            hint="It may end in a line break, or be something else than a key.",
        )
    return StaticBearerAuth(value)
