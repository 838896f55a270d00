"""Secrets on their way into a bundle, which whoever has the bundle could read. No text here ever shows a value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

from benchmax.auth import StaticBearerAuth
from benchmax.bundle.findings.finding import Finding
from benchmax.bundle.findings.walk import Anchor, Text, Walk, as_instance

_LEAST_LENGTH: Final = 8
"""Shorter values are found by chance, and guessed anyway."""

_LEAST_OF_A_WORD: Final = 16

_WORDS: Final = frozenset(
    {
        "AUTH", "AUTHORIZATION", "CREDENTIAL", "CREDENTIALS", "DSN", "KEY", "APIKEY", "PASS", "PASSPHRASE", "PASSWD",
        "PASSWORD", "PAT", "SECRET", "SECRETS", "TOKEN",
    }
)  # fmt: skip
_KEY_OF: Final = frozenset({"API", "ACCESS", "AUTH", "PRIVATE", "SECRET", "SIGNING", "ENCRYPTION", "SERVICE"})
_PLACEHOLDER: Final = re.compile(
    r"(?i)(none|null|dummy|fake|empty|unused|placeholder|example|test|changeme|pass|password|pwd|secret|token"
    r"|x+|\*+)([-_ .]?\w*)"
    r"|(no|not)[-_ ].{0,20}|.*[-_ ](needed|required|used|placeholder)|<.*>|\$?\{.*\}"
)
_URL_PASSWORD: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^/\s:@]*:([^/\s@]+)@")
_SHAPES: Final = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bhf_[A-Za-z0-9]{30,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{35}"
    r"|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----"
)
_LAST_NAME: Final = re.compile(r"(?:\['|\.)([A-Za-z_][A-Za-z0-9_-]*)(?:'\])?$")

_FIX: Final = (
    "For model requests pass InjectedAuth('NAME') and bind it at the run: --auth NAME=env:VAR@URL. For anything else "
    "read os.environ['VAR'] when it is needed, and hand the variable to the run: --secret VAR=env:VAR."
)
_LEAST_OF_ENVIRONMENT: Final = 5


def secret_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose names or values look like secrets, by name, longest value first."""
    found: dict[str, str] = {}
    for name, value in environment.items():
        if is_secret_name(name) and is_secret_value(value):
            found[name] = value
        elif (match := _URL_PASSWORD.search(value)) and len(match[1]) >= _LEAST_LENGTH:
            found[name] = match[1]
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def is_secret_name(name: str) -> bool:
    """Whether something of this name may be a secret, as `OPENAI_API_KEY` or `dbPassword`, not `MONKEY`."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).upper().replace("-", "_").split("_")
    return not _WORDS.isdisjoint(words)


def find_environment(walk: Walk) -> Iterator[tuple[Anchor, Finding]]:
    """Yield what holds all variables of the author's environment, with the name that holds it."""
    for node in walk.nodes:
        if not _holds_environment(node.value):
            continue
        yield (
            node.anchor,
            Finding(
                severity="error",
                code="environment-captured",
                what=node.path,
                message="it takes every variable of your environment into the bundle, with the secrets among them",
                fix="Write `import os` and os.environ['NAME'] where the value is needed; a copy or "
                "`from os import environ` travels by value.",
                file=node.anchor.file,
                line=node.anchor.line,
            ),
        )


def find_secrets(walk: Walk, secrets: Mapping[str, str], known: frozenset[Anchor]) -> Iterator[Finding]:
    """Yield texts that hold a secret.

    Args:
        walk: What travels.
        secrets: Values of secret-looking variables by name.
        known: What is known to hold the whole environment.
    """
    for text in walk.texts:
        if text.anchor in known:
            continue
        if reason := _reason(text, secrets):
            yield _secret(text.path, reason, text.file, text.line)
    for node, name in walk.spotted:
        if node.anchor not in known:
            reason = f"it holds the value of the variable {name}"
            yield _secret(node.path, reason, node.anchor.file, node.anchor.line)
    for node in walk.nodes:
        auth = as_instance(node.value, StaticBearerAuth)
        if auth is not None and is_secret_value(auth.token):
            reason = "StaticBearerAuth carries its token inside the bundle"
            yield _secret(node.path, reason, node.anchor.file, node.anchor.line)


def find_in_source(
    source: str, secrets: Mapping[str, str], *, what: str, file: str, first_line: int
) -> Iterator[Finding]:
    """Yield secrets in the text of the class, which travels beside the pickle with its comments.

    Args:
        source: The text.
        secrets: Values of secret-looking variables by name.
        what: Path to the class.
        file: The file it is from, empty when unknown.
        first_line: Its first line there.
    """
    for number, line in enumerate(source.splitlines()):
        text = Text(f"{what} → source", line, file, first_line + number if file else 0, None, "")
        if reason := _reason(text, secrets):
            yield _secret(text.path, reason, text.file, text.line)


def secrets_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield each part of a text that looks like a secret whatever its name, and why it does."""
    for match in _URL_PASSWORD.finditer(text):
        if not _PLACEHOLDER.fullmatch(match[1]) and "{" not in match[1]:
            yield match[1], "it is a URL with a password"
    for match in _SHAPES.finditer(text):
        yield match[0], "it has the form of a secret key"


def is_secret_argument(name: str, value: str) -> bool:
    """Whether an argument is named like a secret and has a value that may be one."""
    return _names_credential(name) and is_secret_value(value)


def find_in_pickle(pickled: bytes, secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of variables whose values are in a pickle."""
    return (name for name, value in secrets.items() if value.encode("utf-8", "surrogateescape") in pickled)


def without_values(text: str, secrets: Mapping[str, str]) -> str:
    """Return a text with the secrets in it replaced by the names of their variables."""
    for name, value in secrets.items():
        text = text.replace(value, f"[{name}]")
    return _SHAPES.sub("[secret]", _URL_PASSWORD.sub(lambda found: found[0].replace(found[1], "[password]"), text))


def unplaced(environment: str, name: str) -> Finding:
    """Return the finding for a value that is in the pickle, held by nothing that was looked at."""
    return _secret(environment, f"the pickle holds the value of the variable {name}", "", 0)


def _secret(path: str, reason: str, file: str, line: int) -> Finding:
    return Finding(severity="error", code="secret-captured", what=path, message=reason, fix=_FIX, file=file, line=line)


def _reason(text: Text, secrets: Mapping[str, str]) -> str:
    for name, value in secrets.items():
        if value in text.text:
            return f"it holds the value of the variable {name}"
    for _, reason in secrets_in(text.text):
        return reason
    if text.path.startswith("constructor_args["):
        last = _LAST_NAME.search(text.path)
        if last is not None and is_secret_argument(last[1], text.text):
            return f"the argument {last[1]!r} travels inside the bundle and is named like a secret"
    return ""


def _names_credential(name: str) -> bool:
    # `key`, alone or after another word, is mostly that of a mapping
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).upper().replace("-", "_").split("_")
    last = words[-1]
    return last in _WORDS - {"KEY", "AUTH", "PASS"} or (last == "KEY" and len(words) > 1 and words[-2] in _KEY_OF)


def is_secret_value(value: str) -> bool:
    """Whether something that is named like a secret may be one by its value: it is long enough, and no placeholder."""
    return (
        len(value) >= _LEAST_LENGTH
        and not value.isspace()
        # a word such as `postgres` is in many a text
        and not (len(value) < _LEAST_OF_A_WORD and value.isalpha() and value.lower() == value)
        # a socket or a file that holds the secret
        and not value.startswith(("/", "~", "."))
        and _PLACEHOLDER.fullmatch(value) is None
    )


def _holds_environment(value: object) -> bool:
    if type(value) is type(os.environ):
        return True
    if type(value) is not dict or len(value) < max(_LEAST_OF_ENVIRONMENT, len(os.environ) // 2):
        return False
    return all(isinstance(name, str) and os.environ.get(name) == content for name, content in value.items())
