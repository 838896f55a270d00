"""Reads the reason of a failure out of what uv printed."""

from __future__ import annotations

import re
from typing import Final

from runner.provision.build_failure import build_failure
from runner.provision.command import Finished
from runner.provision.diagnosis import (
    EMPTY_SHA256,
    Failure,
    broken_file,
    cache_failure,
    conflict,
    missing_file,
    no_checkout,
    no_version,
    no_wheel,
    other,
    race,
    refused,
    status_text,
    unknown_package,
    unreachable,
    wrong_hash,
)
from runner.provision.workspace import Workspace

_REQUIREMENT: Final = r"[A-Za-z0-9][\w.\-\[\]]*(?:[<>=!~]=?=?[^\s,]+(?:,[<>=!~]=?=?[^\s,]+)*)"
_PACKAGE: Final = r"[A-Za-z0-9][\w.\-\[\]]*(?:[<>=!~][^\s,]*(?:,[<>=!~][^\s,]+)*)?"
_WHO: Final = rf"(?:all versions of )?({_PACKAGE})"
_DEPENDS: Final = re.compile(rf"{_WHO} depends? on ({_REQUIREMENT})")
_ASKED: Final = re.compile(
    rf"you require ({_PACKAGE}(?:(?:, and |, | and )(?!you |the |we |only |because ){_PACKAGE})*)"
)
_CONCLUSION: Final = re.compile(r"we can conclude that .*?(?=\.\s|\.?$)")
_UNKNOWN: Final = re.compile(r"([A-Za-z0-9][\w.\-]*) was not found in the (?:package registry|cache|provided)")
_NO_VERSION: Final = re.compile(rf"there (?:is|are) no versions? of ({_REQUIREMENT})")
_NO_WHEEL: Final = re.compile(r"([A-Za-z0-9][\w.\-]*)(?:==\S+)? has no (?:wheels with a matching|usable wheels)")
_INVALID: Final = re.compile(r"([A-Za-z0-9][\w.\-]*)(?:==\S+)? has (?:an invalid package format|inconsistent metadata)")
_NO_PYTHON: Final = re.compile(
    rf"the (?:current|requested) Python version .* does not satisfy .* and {_WHO} depends on Python"
)
_ONLY: Final = re.compile(
    rf"only (?:the following versions of \S+ are available: )?((?:{_PACKAGE}(?: {_PACKAGE})*?))"
    r"(?: is available|(?= and | we can conclude))"
)
_BUILDING: Final = re.compile(r"[Ff]ailed to (?:download and )?build `([^`]+)`")
_INCLUDED: Final = re.compile(r"was included because (?:`([^`]+)`(?: \(v([^)]+)\))?)")
_FETCHING: Final = re.compile(r"Failed to fetch: `?(https?://([^/`\s]+)[^`\s]*)")
_NAMED: Final = re.compile(
    r"Failed to install: \S+ \(([^)\s]+)[^)]*\)|Failed to (?:download|read|unzip|parse)[^`\n]*`([^`\s]+)[^`]*`"
)
_BROKEN: Final = re.compile(
    r"Failed to (?:extract|unzip|read)[^\n]*|[Ii]nvalid (?:zip|wheel)[^\n]*|(?:The|This) wheel is invalid[^\n]*"
    r"|Metadata field [^\n]*|not a valid wheel[^\n]*|Scripts must not use [^\n]*|[^\n]*RECORD[^\n]*"
)


def diagnose(finished: Finished, space: Workspace) -> Failure:
    """Say why uv failed.

    Args:
        finished: How it ended; credentials are already out of its output.
        space: The build it was part of.
    """
    output = finished.stderr.strip()
    flat = " ".join(output.split())
    if failure := cache_failure(output, space) or race(output, space):
        return failure
    if match := re.search(r"Hash mismatch for `([^`]+)`", output):
        failure = wrong_hash(match[1], space, output)
        # of a file that was about to be written by somebody else
        return Failure("race", failure.error, failure.names) if EMPTY_SHA256 in output else failure
    if match := re.search(r"\(?(401 Unauthorized|403 Forbidden|407 Proxy[^)]*)\)?", output):
        return refused(space, match[1], output)
    causes = re.findall(r"^\s*cause: (.+)$", output, re.MULTILINE)
    if "Git operation failed" in output or "Git executable not found" in output:
        return _no_checkout(output, causes, space)
    if match := _BUILDING.search(output):
        hint = re.search(r"hint: (This error likely indicates .*?build dependency\.)", flat)
        by = _INCLUDED.search(flat)
        wanted_by = (f"{by[1]} {by[2]}" if by[2] else by[1]) if by else ""
        return build_failure(match[1], output, wanted_by=wanted_by, hint=hint[1] if hint else "")
    if "No solution found when resolving" in output:
        return _unsolved(flat, output, space)
    fetching = _FETCHING.search(output)
    if fetching and re.search(r"HTTP status client error \((?:404|410)\b", output):
        return missing_file(fetching[1], space, output)
    if (named := _NAMED.search(output)) and (broken := _BROKEN.search("\n".join(causes))):
        return broken_file(named[1] or named[2], broken[0], space, output)
    if match := re.search(r"HTTP status server error \((\d+)", output):
        answer = f"it answers {status_text(match[1])}"
        return unreachable(space, answer, output, host=fetching[2] if fetching else "")
    if fetching or "error sending request" in output:
        return unreachable(space, causes[-1] if causes else flat, output, host=fetching[2] if fetching else "")
    return other("uv", finished.how, output, causes)


def _no_checkout(output: str, causes: list[str], space: Workspace) -> Failure:
    package = _BUILDING.search(output) or re.search(r"`([^`]+ @ git\+[^`]+)`", output)
    said = re.findall(r"^\s*(?:fatal|error|remote): (.+)$", output.partition("cause:")[2], re.MULTILINE)
    reason = said[-1] if said else causes[-1] if causes else "git failed"
    return no_checkout(package[1].partition(" @ ")[0] if package else "a requirement", reason, space, output)


def _unsolved(flat: str, output: str, space: Workspace) -> Failure:
    explanation = flat.partition("cause: ")[2].partition(" hint: ")[0]
    # what uv derives on its way is nobody's requirement
    given = _CONCLUSION.sub("", explanation)
    depends = [(who, _trim(text)) for who, text in _DEPENDS.findall(given)]
    asked = [_trim(text) for found in _ASKED.findall(given) for text in re.split(r", and | and |, (?![<>=!~])", found)]
    sides = [*depends, *(("", text) for text in asked if re.search(r"[<>=!~]", text))]
    if match := _UNKNOWN.search(explanation):
        return unknown_package(match[1], _who_wants(match[1], explanation), space, output)
    if match := _NO_WHEEL.search(explanation):
        return no_wheel(match[1], _who_wants(match[1], explanation), space, output)
    if match := _NO_PYTHON.search(explanation):
        return no_wheel(match[1], "", space, output)
    if match := _INVALID.search(explanation):
        why = re.search(r"The structure of `[^`]+`[^:]*was invalid: (.*?)(?= hint: |$)", flat)
        return broken_file(match[1], why[1] if why else "its metadata is wrong", space, output)
    only = _ONLY.search(explanation)
    if match := _NO_VERSION.search(explanation):
        requirement = _trim(match[1])
    else:
        # only what there is and what is wanted are named, and the two do not meet
        short = [text for _, text in sides if only and _same_package(text, only[1])]
        requirement = short[0] if len(short) == 1 else ""
    if requirement and not any(text != requirement and _same_package(text, requirement) for _, text in sides):
        there_is = only[1] if only and _same_package(only[1], requirement) else ""
        return no_version(requirement, _who_wants(requirement, explanation), space, output, there_is=there_is)
    return conflict(sides, explanation, output)


def _who_wants(requirement: str, explanation: str) -> str:
    match = re.search(rf"{_WHO} depends? on {re.escape(requirement)}(?![\w.-])", explanation)
    return match[1] if match else ""


def _same_package(one: str, another: str) -> bool:
    return re.split(r"[<>=!~\[]", one)[0] == re.split(r"[<>=!~\[]", another)[0]


def _trim(text: str) -> str:
    return text.rstrip(".,")
