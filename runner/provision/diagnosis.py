"""Why an installer failed: the kinds there are, the error each becomes, and what both installers' outputs share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import urlsplit

from runner.errors import IndexUnreachableError, ProvisionError, RequirementError
from runner.provision.workspace import Workspace

Kind = Literal[
    "unknown-package",
    "no-version",
    "conflict",
    "no-wheel",
    "build",
    "unreachable",
    "authentication",
    "missing-file",
    "broken-file",
    "hash",
    "disk",
    "race",
    "other",
]
"""What went wrong. Only a `race` is worth trying again: all others end the same way each time."""

DETAIL_CHARS: Final = 8000
LINE_CHARS: Final = 400

_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|os error 122\b")
_NOT_WRITABLE: Final = re.compile(r"Read-only file system|os error 30\b|Permission denied|os error 13\b")
_VANISHED: Final = (
    r"No such file or directory|Stale file handle|Directory not empty|os error (?:2|17|20|39|116)\b"
    r"|\[Errno (?:2|17|20|39|116)\]"
)
_CERTIFICATE: Final = re.compile(r"certificate|UnknownIssuer|CERTIFICATE_VERIFY_FAILED")
EMPTY_SHA256: Final = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""Of no bytes at all: the mark of a cache entry that somebody else was about to write."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an installer failed.

    Args:
        kind: What went wrong.
        error: The error to raise for it.
        names: Canonical names of packages its text is about.
    """

    kind: Kind
    error: ProvisionError
    names: frozenset[str] = frozenset()


class InstallerFailedError(Exception):
    """Raised inside provisioning when an installer failed; what leaves provisioning is `failure.error`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error.message)
        self.failure = failure


def cache_failure(output: str, space: Workspace) -> Failure | None:
    """Recognise a full disk or an unwritable cache."""
    if match := _DISK_FULL.search(output):
        return Failure("disk", space.cache.error(match[0], full=True))
    for line in output.splitlines():
        if (match := _NOT_WRITABLE.search(line)) and str(space.cache.root) in line:
            return Failure("disk", space.cache.error(match[0], full=False))
    return None


def race(output: str, space: Workspace) -> Failure | None:
    """Recognise that files of the installers' shared cache vanished or changed while they were used."""
    for folder in (space.cache.uv_dir, space.cache.pip_dir):
        path = re.escape(f"{folder}/")
        match = re.search(rf"^.*(?:{_VANISHED}).*{path}.*$|^.*{path}.*(?:{_VANISHED}).*$", output, re.MULTILINE)
        if match:
            return Failure(
                "race",
                ProvisionError(
                    f"the installer's cache changed while it was used: {one_line(match[0])}.",
                    hint="Run it again; nothing should clean that cache while something is being installed.",
                    detail=clip(output),
                ),
            )
    return None


def unknown_package(name: str, wanted_by: str, space: Workspace, detail: str) -> Failure:
    """A name the index does not have."""
    by = f", which {wanted_by} wants" if wanted_by else ""
    return Failure(
        "unknown-package",
        RequirementError(
            f"there is no package named {name!r}{by} on {space.index.host_of(name)}.",
            hint="Correct the name in pip_dependencies, or name the index that has it.",
            detail=clip(detail),
        ),
        frozenset({name}),
    )


def no_version(requirement: str, wanted_by: str, space: Workspace, detail: str, *, there_is: str = "") -> Failure:
    """A package that exists, but not in such a version."""
    by = f", which {wanted_by} wants" if wanted_by else ""
    known = f" (there is: {there_is})" if there_is else ""
    name = bare_name(requirement)
    return Failure(
        "no-version",
        RequirementError(
            f"no version of {name!r} on {space.index.host_of(name)} meets {requirement}{by}{known}.",
            hint="Loosen that requirement.",
            detail=clip(detail),
        ),
        frozenset({bare_name(requirement), bare_name(wanted_by)}),
    )


def no_wheel(name: str, wanted_by: str, space: Workspace, detail: str) -> Failure:
    """A package that exists, but not for this Python or this machine."""
    by = f", which {wanted_by} wants," if wanted_by else ""
    python = space.interpreter
    return Failure(
        "no-wheel",
        RequirementError(
            f"{name!r}{by} has no file that fits Python {python.version} on {python.platform}.",
            hint="Ask for another version of it, or bundle for another Python.",
            detail=clip(detail),
        ),
        frozenset({bare_name(name)}),
    )


def conflict(sides: Iterable[tuple[str, str]], explanation: str, detail: str) -> Failure:
    """Requirements that contradict each other.

    Args:
        sides: Who wants (empty for what was asked for directly), and the requirement.
        explanation: The installer's own words, used where no two sides are about one package.
        detail: Everything it said.
    """
    wanted: dict[str, list[tuple[str, str]]] = {}
    for side in sides:
        entries = wanted.setdefault(bare_name(side[1]), [])
        if side not in entries:
            entries.append(side)
    contested = {name: entries for name, entries in wanted.items() if len({text for _, text in entries}) > 1}
    names = {bare_name(who) for entries in wanted.values() for who, _ in entries if who} | set(wanted)
    if contested:
        parts = []
        for name, entries in contested.items():
            said = [f"{who} wants {text}" if who else f"{text} is asked for" for who, text in entries]
            parts.append(f"on {name!r}: {', '.join(said)}")
        message = f"requirements contradict each other {'; '.join(parts)}"
    else:
        message = f"requirements contradict each other: {explanation}"
    return Failure(
        "conflict",
        RequirementError(f"{one_line(message)}.", hint="Loosen one of them in pip_dependencies.", detail=clip(detail)),
        frozenset(names),
    )


def unreachable(space: Workspace, reason: str, detail: str, *, host: str = "") -> Failure:
    """An index or file host that does not answer, or not sensibly."""
    host = host or space.index.host
    if _CERTIFICATE.search(reason):
        hint = "Name the file of the certificate authorities to trust in the variable SSL_CERT_FILE."
    else:
        hint = "Check the network and the proxy settings, or name another index."
    what = "the package index" if host == space.index.host else "the server"
    return Failure(
        "unreachable",
        IndexUnreachableError(
            f"{what} at {host} cannot be reached: {one_line(reason)}.", hint=hint, detail=clip(detail)
        ),
    )


def refused(space: Workspace, reason: str, detail: str) -> Failure:
    """An index that wants credentials it was not given."""
    by_proxy = reason.startswith("407")
    what = "the proxy on the way to the package index" if by_proxy else "the package index"
    hint = (
        "Give user name and password in the proxy variables."
        if by_proxy
        else "Give user name and password in its address, or check the ones given."
    )
    return Failure(
        "authentication",
        IndexUnreachableError(
            f"{what} at {space.index.host} refuses access: {one_line(reason)}.", hint=hint, detail=clip(detail)
        ),
    )


def missing_file(url: str, space: Workspace, detail: str) -> Failure:
    """A file that is not where the index, or the bundle itself, says."""
    parts = urlsplit(url)
    name = parts.path.rpartition("/")[2] or url
    # both installers name a requirement that has an address of its own in this way
    if f" @ {url.partition('#')[0]}" in detail:
        error: ProvisionError = RequirementError(
            f"there is no file {name} at {parts.netloc} (404).",
            hint="Correct the address in pip_dependencies.",
            detail=clip(detail),
        )
    else:
        error = IndexUnreachableError(
            f"the package index at {space.index.host} lists {name}, but the file is not there (404).",
            hint="Its pages may be out of step with its files; try later, or ask for another version.",
            detail=clip(detail),
        )
    return Failure("missing-file", error)


def broken_file(package: str, reason: str, space: Workspace, detail: str) -> Failure:
    """A file that is no package."""
    host = space.index.host_of(bare_name(package))
    return Failure(
        "broken-file",
        ProvisionError(
            f"the file of {package!r} from {host} is not a valid package: {one_line(reason)}.",
            hint="Ask for another version, or tell who runs the index.",
            detail=clip(detail),
        ),
        frozenset({bare_name(package)}),
    )


def no_checkout(package: str, reason: str, space: Workspace, detail: str) -> Failure:
    """A requirement on a repository that cannot be fetched."""
    if re.search(r"Could(?: not|n't) (?:connect|resolve)|Failed to connect|timed out|unable to look up", reason):
        host = re.search(r"https?://([^/'\s]+)|(?<=@)([\w.-]+)(?=[:/])", reason)
        return unreachable(space, reason, detail, host=(host[1] or host[2]) if host else "its repository")
    return Failure(
        "missing-file",
        RequirementError(
            f"the repository of {package!r} cannot be fetched: {one_line(reason)}.",
            hint="Check address and revision in pip_dependencies; one that asks for a login cannot be used.",
            detail=clip(detail),
        ),
        frozenset({bare_name(package)}),
    )


def wrong_hash(package: str, space: Workspace, detail: str) -> Failure:
    """A file whose content is not what the index or the lock says."""
    host = space.index.host_of(bare_name(package))
    return Failure(
        "hash",
        ProvisionError(
            f"a file of {package!r} from {host} is not the one its digest stands for.",
            hint="A proxy or mirror may be broken, or the file was replaced; do not trust it before you know.",
            detail=clip(detail),
        ),
        frozenset({bare_name(package)}),
    )


def other(title: str, how: str, output: str, causes: Sequence[str] = ()) -> Failure:
    """Something new; the installer's own last words say what."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:] or ["it said nothing"]
    said = one_line(": ".join([errors[0], *causes[-1:]]))
    return Failure("other", ProvisionError(f"{title} failed with {how}: {said}.", detail=clip(output)))


def status_text(code: str) -> str:
    """Return an HTTP status with its name, such as `503 Service Unavailable`."""
    try:
        return f"{code} {HTTPStatus(int(code)).phrase}"
    except ValueError:
        return code


def bare_name(requirement: str) -> str:
    """Return the canonical package name at the beginning of a requirement or of `name==version`."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


def one_line(text: str) -> str:
    """Return a text as one bounded line without a full stop."""
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= LINE_CHARS else text[: LINE_CHARS - 1] + "…"


def clip(text: str) -> str:
    """Bound a detail; the end of an output says more than its beginning."""
    text = text.strip()
    return text if len(text) <= DETAIL_CHARS else "…" + text[-DETAIL_CHARS:]
