"""What in an artifact looks like a secret, told from its bytes. No text here ever shows a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from benchmax.bundle.findings.credentials import find_in_pickle, is_secret_argument, is_secret_value, secrets_in
from benchmax.bundle.findings.finding import Finding
from runner.artifact import Artifact
from runner.inspecting import Overview
from runner.inspecting.values import Call, Global, Pairs, Value, made_by, members, pairs
from runner.validation.contents import Contents

BEARER: Final = "benchmax.auth.StaticBearerAuth"

_VARIABLES: Final = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "LANG", "TERM", "HOSTNAME", "SHLVL"})
_LEAST_VARIABLES: Final = 4
"""Of those, in a dict that is taken to be an environment."""

_FIX: Final = (
    "Replace the secret, since whoever has the bundle can read it, and bundle again without: InjectedAuth('NAME') for "
    "model requests, os.environ['VAR'] with --secret VAR=env:VAR for anything else."
)


def find_secrets(
    artifact: Artifact, overview: Overview, contents: Contents, given: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what looks like a secret, each once however often it is in there.

    Args:
        artifact: The bundle.
        overview: What loading its pickle would do.
        contents: What is in its pickle.
        given: Secrets that the caller hands in, by name.
    """
    found = [*contents.values()]
    environment = next((one for one in found if _is_environment(one.value)), None)
    if environment is not None or any(one.code == "environment" for one in overview.findings):
        # its variables hold the secrets, which are not told one by one
        yield Finding(
            severity="error",
            code="environment-captured",
            what=environment.path if environment is not None else "its pickle",
            message="it holds the environment variables of whoever packed it, with the secrets among them",
            fix="Replace the secrets among them. Write `import os` and os.environ['NAME'] where a value is needed, "
            "and bundle again.",
        )
        return
    known: dict[str, None] = {}
    for one in found:
        for value, reason in _secrets(one.name, one.value, in_arguments=one.path.startswith("constructor_args")):
            if value not in known:
                known[value] = None
                yield _secret(one.path, reason)
    # what is too long to be kept as a value
    for value, reason in secrets_in(artifact.bundle.pickled.decode("latin-1")):
        if not any(value in one or one in value for one in known):
            known[value] = None
            yield _secret("its pickle", reason)
    for number, line in enumerate((artifact.bundle.metadata.env_class_source or "").splitlines(), 1):
        for value, reason in secrets_in(line):
            if value not in known:
                known[value] = None
                yield _secret(f"env_class_source, line {number}", reason)
    for name in find_in_pickle(artifact.bundle.pickled, given):
        if given[name] not in known:
            yield _secret("its pickle", f"it holds the value of the secret {name}")


def _secrets(name: str, value: Value, *, in_arguments: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        found = False
        for one in secrets_in(value):
            found = True
            yield one
        if not found and in_arguments and is_secret_argument(name, value):
            yield value, f"the argument {name!r} travels inside the bundle and is named like a secret"
    elif isinstance(value, Call) and _makes_bearer(value):
        for token in _texts(value):
            if is_secret_value(token):
                yield token, "StaticBearerAuth carries its token inside the bundle"


def _makes_bearer(call: Call) -> bool:
    if made_by(call) == BEARER:
        return True
    given = members(call.arguments)
    return bool(given) and isinstance(given[0], Global) and given[0].path == BEARER


def _texts(call: Call) -> Iterator[str]:
    waiting: list[Value] = [call.arguments, call.state]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Pairs):
            waiting += [member for _, member in value.members]
        else:
            waiting += members(value)


def _is_environment(value: Value) -> bool:
    if isinstance(value, Global):
        return value.path in ("os.environ", "os.environb")
    names = {*pairs(value)}
    if isinstance(value, Pairs):
        names |= {key.decode("latin-1") for key, _ in value.members if isinstance(key, bytes)}
    return len(names & _VARIABLES) >= _LEAST_VARIABLES


def _secret(path: str, reason: str) -> Finding:
    return Finding(severity="error", code="secret-captured", what=path, message=reason, fix=_FIX)
