"""Why an installer failed: the kinds there are, the error each becomes, and what both installers' outputs share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from runner.errors import BuildError, IndexUnreachableError, ProvisionError, RequirementError
from runner.provision.workspace import Workspace

Kind = Literal[
    "unknown-package",
    "no-version",
    "conflict",
    "no-wheel",
    "build",
    "unreachable",
    "authentication",
    "hash",
    "disk",
    "other",
]

DETAIL_CHARS: Final = 8000
LINE_CHARS: Final = 400

_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|os error 122\b")
_NOT_WRITABLE: Final = re.compile(r"Read-only file system|os error 30\b|Permission denied|os error 13\b")
_NO_COMPILER: Final = re.compile(
    r"command '?[^'\n]*\b(?:gcc|g\+\+|cc|c\+\+|clang)'? failed: No such file"
    r"|unable to execute '?[^'\n]*\b(?:gcc|g\+\+|cc|clang)'?"
    r"|Unknown compiler\(s\)|No CMAKE_C(?:XX)?_COMPILER could be found|(?:gcc|cc|clang): (?:command )?not found"
    r"|no acceptable C compiler",
    re.IGNORECASE,
)
_NO_MODULE: Final = re.compile(r"No module named '([\w.]+)'")


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
    if (match := _NOT_WRITABLE.search(output)) and str(space.cache.root) in output:
        return Failure("disk", space.cache.error(match[0], full=False))
    return None


def unknown_package(name: str, wanted_by: str, space: Workspace, detail: str) -> Failure:
    """A name the index does not have."""
    by = f", which {wanted_by} wants" if wanted_by else ""
    return Failure(
        "unknown-package",
        RequirementError(
            f"there is no package named {name!r}{by} on {space.index.host}.",
            hint="Correct the name in pip_dependencies, or name the index that has it.",
            detail=clip(detail),
        ),
        frozenset({name}),
    )


def no_version(requirement: str, wanted_by: str, space: Workspace, detail: str, *, there_is: str = "") -> Failure:
    """A package that exists, but not in such a version."""
    by = f", which {wanted_by} wants" if wanted_by else ""
    known = f" (there is: {there_is})" if there_is else ""
    return Failure(
        "no-version",
        RequirementError(
            f"no version of {bare_name(requirement)!r} on {space.index.host} meets {requirement}{by}{known}.",
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


def build_failure(package: str, output: str, hint: str = "") -> Failure:
    """A source distribution that could not be built; the detail is the end of what the build said."""
    tail = "\n".join(output.strip().splitlines()[-60:])
    if _NO_COMPILER.search(output):
        message = f"building {package!r} failed: no C compiler."
        remedy = "Install one (such as gcc), or ask for a version that has a wheel for this Python."
    elif module := _NO_MODULE.search(output):
        message = f"building {package!r} failed: its build needs {module[1]!r}, which it does not declare."
        remedy = hint or "Ask for a version that has a wheel for this Python."
    else:
        message = f"building {package!r} from source failed."
        remedy = "See the detail for the end of its output; a version with a wheel for this Python needs no build."
    return Failure("build", BuildError(message, hint=remedy, detail=clip(tail)), frozenset({bare_name(package)}))


def unreachable(space: Workspace, reason: str, detail: str, *, host: str = "") -> Failure:
    """An index or file host that does not answer."""
    return Failure(
        "unreachable",
        IndexUnreachableError(
            f"the package index at {host or space.index.host} cannot be reached: {one_line(reason)}.",
            hint="Check the network and the proxy settings, or name another index.",
            detail=clip(detail),
        ),
    )


def refused(space: Workspace, reason: str, detail: str) -> Failure:
    """An index that wants credentials it was not given."""
    return Failure(
        "authentication",
        IndexUnreachableError(
            f"the package index at {space.index.host} refuses access: {one_line(reason)}.",
            hint="Give user name and password in its address, or check the ones given.",
            detail=clip(detail),
        ),
    )


def wrong_hash(package: str, space: Workspace, detail: str) -> Failure:
    """A file whose content is not what the index or the lock says."""
    return Failure(
        "hash",
        ProvisionError(
            f"a file of {package!r} from {space.index.host} is not the one its digest stands for.",
            hint="A proxy or mirror may be broken, or the file was replaced; do not trust it before you know.",
            detail=clip(detail),
        ),
        frozenset({bare_name(package)}),
    )


def other(title: str, how: str, output: str) -> Failure:
    """Something new; the installer's own last words say what."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:] or ["it said nothing"]
    return Failure("other", ProvisionError(f"{title} failed with {how}: {one_line(errors[0])}.", detail=clip(output)))


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
