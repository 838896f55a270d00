"""Reads the reason of a failure out of what uv printed."""

from __future__ import annotations

import re
from typing import Final

from runner.provision.command import Finished
from runner.provision.diagnosis import (
    Failure,
    build_failure,
    cache_failure,
    conflict,
    no_version,
    no_wheel,
    other,
    refused,
    unknown_package,
    unreachable,
    wrong_hash,
)
from runner.provision.workspace import Workspace

_REQUIREMENT: Final = r"[A-Za-z0-9][\w.\-\[\]]*(?:[<>=!~]=?=?[^\s,]+(?:,[<>=!~]=?=?[^\s,]+)*)"
_WHO: Final = r"(?:all versions of )?([A-Za-z0-9][\w.\-\[\]]*(?:[<>=!~]\S*)?)"
_DEPENDS: Final = re.compile(rf"{_WHO} depends? on ({_REQUIREMENT})")
_ASKED: Final = re.compile(rf"you require ({_REQUIREMENT})")
_UNKNOWN: Final = re.compile(r"([A-Za-z0-9][\w.\-]*) was not found in the (?:package registry|cache|provided)")
_NO_VERSION: Final = re.compile(rf"there (?:is|are) no versions? of ({_REQUIREMENT})")
_NO_WHEEL: Final = re.compile(r"([A-Za-z0-9][\w.\-]*)(?:==\S+)? has no wheels with a matching")
_NO_PYTHON: Final = re.compile(
    rf"the (?:current|requested) Python version .* does not satisfy .* and {_WHO} depends on Python"
)
_ONLY: Final = re.compile(rf"only ((?:{_REQUIREMENT})|[A-Za-z0-9][\w.\-]*) is available")
_BUILDING: Final = re.compile(r"[Ff]ailed to (?:download and )?build `([^`]+)`")
_FETCHING: Final = re.compile(r"Failed to fetch: `?(?:https?://)([^/`\s]+)")


def diagnose(finished: Finished, space: Workspace) -> Failure:
    """Say why uv failed.

    Args:
        finished: How it ended; credentials are already out of its output.
        space: The build it was part of.
    """
    output = finished.stderr.strip()
    flat = " ".join(output.split())
    if failure := cache_failure(output, space):
        return failure
    if match := re.search(r"Hash mismatch for `([^`]+)`", output):
        return wrong_hash(match[1], space, output)
    if match := re.search(r"\(?(401 Unauthorized|403 Forbidden|407 Proxy[^)]*)\)?", output):
        return refused(space, match[1], output)
    if match := _BUILDING.search(output):
        hint = re.search(r"hint: (This error likely indicates[^.]*\.)", flat)
        return build_failure(match[1], output, hint[1] if hint else "")
    if "No solution found when resolving" in output:
        return _unsolved(flat, output, space)
    if "Failed to fetch" in output or "error sending request" in output or "Failed to download" in output:
        causes = re.findall(r"^\s*cause: (.+)$", output, re.MULTILINE)
        host = _FETCHING.search(output)
        return unreachable(space, causes[-1] if causes else flat, output, host=host[1] if host else "")
    return other("uv", finished.how, output)


def _unsolved(flat: str, output: str, space: Workspace) -> Failure:
    explanation = flat.partition("cause: ")[2].partition(" hint: ")[0]
    depends = [(who, _trim(text)) for who, text in _DEPENDS.findall(explanation)]
    sides = [*depends, *(("", _trim(text)) for text in _ASKED.findall(explanation))]
    if match := _UNKNOWN.search(explanation):
        return unknown_package(match[1], _who_wants(match[1], explanation), space, output)
    if match := _NO_WHEEL.search(explanation):
        return no_wheel(match[1], _who_wants(match[1], explanation), space, output)
    if match := _NO_PYTHON.search(explanation):
        return no_wheel(match[1], "", space, output)
    if match := _NO_VERSION.search(explanation):
        requirement = _trim(match[1])
        others = [text for _, text in sides if text != requirement and _same_package(text, requirement)]
        if not others:
            only = _ONLY.search(explanation)
            by = _who_wants(requirement, explanation)
            return no_version(requirement, by, space, output, there_is=only[1] if only else "")
    return conflict(sides, explanation, output)


def _who_wants(requirement: str, explanation: str) -> str:
    match = re.search(rf"{_WHO} depends? on {re.escape(requirement)}(?![\w.-])", explanation)
    return match[1] if match else ""


def _same_package(one: str, another: str) -> bool:
    return re.split(r"[<>=!~\[]", one)[0] == re.split(r"[<>=!~\[]", another)[0]


def _trim(text: str) -> str:
    return text.rstrip(".,")
