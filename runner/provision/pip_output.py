"""Reads the reason of a failure out of what pip printed."""

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

_NO_MATCH: Final = re.compile(r"^ERROR: No matching distribution found for (.+?)(?: \(from (.+)\))?$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"\(from versions: ([^)]*)\)")
_REFUSED: Final = re.compile(r"(?:401|403|407) Client Error[^\n]*|(?<=HTTP/1\.1\" )(?:401|403|407)\b")
_GAVE_UP: Final = re.compile(r"Retrying \(Retry\(total=0.*?connection broken by '(.*)': (\S+)")
_BUILDING: Final = (
    re.compile(r"Encountered error while generating package metadata\.\s*╰─> (\S+)"),
    re.compile(r"ERROR: Failed building wheel for (\S+)"),
    re.compile(r"Failed to build '?([^'\s]+)'?"),
)
_CONFLICT: Final = re.compile(r"The conflict is caused by:\n((?:[ \t]+\S.*\n)+)")
_DEPENDS: Final = re.compile(r"^(\S+ \S+) depends on (.+)$")
_ASKED: Final = re.compile(r"^The user requested (.+)$")


def missing_package(output: str) -> str | None:
    """Return the name pip found nothing for, if that is why it failed."""
    match = _NO_MATCH.search(output)
    return re.split(r"[<>=!~\[;@ ]", match[1])[0] if match else None


def diagnose(finished: Finished, space: Workspace, *, log: str = "") -> Failure:
    """Say why pip failed.

    Args:
        finished: How it ended; credentials are already out of its output.
        space: The build it was part of.
        log: What `pip index versions NAME -vv` said about the package nothing was found for.
    """
    output = finished.output
    if failure := cache_failure(output, space):
        return failure
    if "DO NOT MATCH THE HASHES" in output:
        match = re.search(r"^\s+(\S+) from ", output, re.MULTILINE)
        return wrong_hash(match[1] if match else "a package", space, output)
    if match := _REFUSED.search(f"{log}\n{output}"):
        return refused(space, match[0].partition(" for url")[0], output)
    if match := _GAVE_UP.search(output + log):
        reason = match[1].rpartition(": ")[2].strip("\"')")
        return unreachable(space, reason, output)
    for pattern in _BUILDING:
        if match := pattern.search(output):
            return build_failure(match[1], output)
    if match := _CONFLICT.search(output):
        sides = []
        for line in match[1].splitlines():
            if depends := _DEPENDS.match(line.strip()):
                sides.append((depends[1], depends[2]))
            elif asked := _ASKED.match(line.strip()):
                sides.append(("", asked[1]))
        return conflict(sides, "; ".join(line.strip() for line in match[1].splitlines()), output)
    if match := _NO_MATCH.search(output):
        return _nothing_found(match[1], match[2] or "", output, log, space)
    return other("pip", finished.how, output)


def _nothing_found(requirement: str, wanted_by: str, output: str, log: str, space: Workspace) -> Failure:
    name = re.split(r"[<>=!~\[;@ ]", requirement)[0]
    # "from a->b" names the whole path to it; the first is who wants it
    wanted_by = wanted_by.partition("->")[0].partition(" @ ")[0]
    versions = _VERSIONS.search(output)
    if versions is not None and versions[1] != "none":
        return no_version(requirement, wanted_by, space, output, there_is=versions[1])
    other_python = "require a different python version" in output.lower()
    if other_python or "Skipping link: none of the wheel's tags" in log or "requires a different Python" in log:
        return no_wheel(name, wanted_by, space, output)
    return unknown_package(name, wanted_by, space, output)
