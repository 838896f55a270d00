"""Reads the reason of a failure out of what pip printed."""

from __future__ import annotations

import re
import shutil
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

_NO_MATCH: Final = re.compile(r"^ERROR: No matching distribution found for (.+?)(?: \(from (.+)\))?$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"\(from versions: ([^)]*)\)")
_REFUSED: Final = re.compile(r"(401|403|407) Client Error|(?<=HTTP/1\.1\" )(401|403|407)\b")
_SERVER_ERROR: Final = re.compile(
    r"(5\d\d) Server Error: [^\n]*? for url: https?://([^/\s]+)|too many (5\d\d) error responses"
)
_GONE: Final = re.compile(r"HTTP error (?:404|410) while getting (\S+)")
_GAVE_UP: Final = re.compile(r"Retrying \(Retry\(total=0.*?connection broken by '(.*)': (\S+)")
_CUT_OFF: Final = re.compile(
    r"not enough bytes were received \((?:[^/)]*/)?(?P<size>[\d.]+) (?P<unit>bytes|kB|MB|GB)\)"
    r"(?:\s*╰─> URL: https?://(?P<host>[^/\s]+))?"
)
_UNITS: Final = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_HOST: Final = re.compile(r"host='([^']+)', port=(\d+)")
_UNFETCHED: Final = re.compile(r"Failed to build '?([^'\s]+)'? when git |Cannot find command 'git'")
_BROKEN: Final = (
    re.compile(r"ERROR: Wheel '(?P<name>[^']+)' located at \S+ (?P<why>is invalid)"),
    re.compile(r"ERROR: For req: (?P<name>[^\s;]+?)\.? (?P<why>[^\n]*)"),
    re.compile(r"ERROR: (?P<name>\S+) has an (?P<why>invalid wheel[^\n]*)"),
    re.compile(r"ERROR: (?P<name>\S+) (?P<why>(?:is not a supported wheel|has inconsistent)[^\n]*)"),
)
_BUILDING: Final = (
    re.compile(r"Encountered error while generating package metadata\.\s*╰─> (\S+)"),
    re.compile(r"ERROR: Failed building wheel for (\S+)"),
    re.compile(r"Failed to build '?([^'\s]+)'?"),
)
_COLLECTING: Final = r"^Collecting {name}(?:[<>=!~\[;][^\n(]*?| @ \S+)?(?: \(from ([^)\n]+)\))?$"
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
    if failure := cache_failure(output, space) or race(output, space):
        return failure
    if "DO NOT MATCH THE HASHES" in output:
        match = re.search(r"^\s+(\S+) from ", output, re.MULTILINE)
        failure = wrong_hash(match[1] if match else "a package", space, output)
        # of a file that was about to be written by somebody else
        return Failure("race", failure.error, failure.names) if EMPTY_SHA256 in output else failure
    if match := _GONE.search(output):
        return missing_file(match[1], space, output)
    if match := _REFUSED.search(f"{log}\n{output}"):
        return refused(space, status_text(match[1] or match[2]), output)
    if match := _SERVER_ERROR.search(f"{log}\n{output}"):
        answer = f"it answers {status_text(match[1] or match[3])}"
        return unreachable(space, answer, output, host=match[2] or "")
    if match := _UNFETCHED.search(output):
        said = re.findall(r"^\s*(?:fatal|error|ERROR): (.+)$", output, re.MULTILINE)
        reason = next((line for line in said if not line.startswith(("subprocess-", "Failed to build"))), "git failed")
        return no_checkout(match[1] or "a requirement", reason, space, output)
    if match := _GAVE_UP.search(output + log):
        return unreachable(space, _reason(match[1]), output, host=_host(match[1], space))
    if match := _CUT_OFF.search(output):
        return _cut_off(match, space, output)
    for pattern in _BROKEN:
        if match := pattern.search(output):
            return broken_file(match["name"], match["why"], space, output)
    for pattern in _BUILDING:
        if match := pattern.search(output):
            name = match[1]
            by = re.search(_COLLECTING.format(name=re.escape(name)), output, re.MULTILINE | re.IGNORECASE)
            wanted_by = (by[1] or "").partition("->")[0].partition(" @ ")[0] if by else ""
            return build_failure(name, output, wanted_by=wanted_by)
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


def _cut_off(match: re.Match[str], space: Workspace, output: str) -> Failure:
    """Say why a download ended early: for pip a disk that is full of its cache is a broken connection."""
    size = float(match["size"]) * _UNITS[match["unit"]]
    # once into the cache and once for itself; what it had written is gone by now
    if shutil.disk_usage(space.cache.root).free < 2 * size:
        reason = f"No space left on device for a download of {match['size']} {match['unit']}, which is kept twice"
        return Failure("disk", space.cache.error(reason, full=True))
    host = match["host"] or ""
    return unreachable(
        space, "a download broke off again and again", output, host="" if host == space.index.host else host
    )


def _reason(text: str) -> str:
    """Take what happened out of the exceptions it is wrapped in."""
    text = re.sub(r"^(?:\w+\()+(?:\d+, )?[\"']?", "", text)
    text = re.sub(r"^HTTPS?Connection(?:Pool)?\(host='[^']*', port=\d+\): ", "", text).rstrip("\"')")
    return text + ")" * max(0, text.count("(") - text.count(")"))


def _host(text: str, space: Workspace) -> str:
    """Return the host that was asked if it is not the index."""
    match = _HOST.search(text)
    if match is None:
        return ""
    host = f"{match[1]}:{match[2]}" if match[2] not in ("80", "443") else match[1]
    return "" if host == space.index.host else host


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
