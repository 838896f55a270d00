"""What provisioning refuses because of how it was asked: nothing from the network, nothing from source, nothing new."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from runner.errors import BuildError, IndexUnreachableError, RequirementError
from runner.provision.diagnosis import Failure, bare_name, clip, one_line, unreachable
from runner.provision.workspace import Workspace

_NETWORK: Final = frozenset({"unreachable", "authentication", "missing-file", "other"})
"""Kinds of failures behind which a host may be that was refused or did not answer."""

SHOWN: Final = 40
"""Names in one message; a list beyond that helps nobody."""


def missing_offline(names: Iterable[str], space: Workspace, detail: str = "") -> Failure:
    """Say everything that would have to be loaded.

    Args:
        names: Packages, as `name` or `name==version`.
        space: The build.
        detail: What the installer said.
    """
    wanted = sorted(set(names))
    where = "neither the cache nor find-links holds" if space.options.find_links else "the cache does not hold"
    return Failure(
        "unreachable",
        IndexUnreachableError(
            f"offline, and {where} {_listed(wanted)}.",
            hint="Prepare it once with the network, or name a folder that has them with --find-links.",
            detail=clip(detail),
        ),
        frozenset(map(bare_name, wanted)),
    )


def wheels_only(names: Collection[str], space: Workspace, detail: str = "") -> Failure:
    """Say everything that would have to be built from source.

    Args:
        names: The packages.
        space: The build.
        detail: What the installer said.
    """
    wanted = sorted({bare_name(name) for name in names})
    have, them = ("has", "it") if len(wanted) == 1 else ("have", "them")
    python = space.interpreter
    return Failure(
        "no-wheel",
        RequirementError(
            f"only wheels are allowed, but {_listed(wanted)} {have} none that fits Python {python.version} on "
            f"{python.platform}.",
            hint=f"Leave out --only-binary to build {them} from source, or ask for other versions.",
            detail=clip(detail),
        ),
        frozenset(wanted),
    )


def nothing_so_old(name: str, space: Workspace, detail: str) -> Failure:
    """Say that a package has nothing from before the day that was chosen."""
    host = space.index.host_of(name)
    return Failure(
        "no-version",
        RequirementError(
            f"{host} tells of no file of {name!r} that was uploaded up to {space.options.exclude_newer}.",
            hint="Choose a later day for --exclude-newer; an index that tells no upload times cannot be used with it.",
            detail=clip(detail),
        ),
        frozenset({bare_name(name)}),
    )


def meddled(reason: str) -> Failure:
    """Say that the code of a package left something else than its installer was to leave."""
    return Failure(
        "build",
        BuildError(
            f"what was resolved cannot be read: {one_line(reason)}; the build of a package may have meddled with it.",
            hint="Ask for versions that have wheels for this Python.",
        ),
    )


def needs_network_to_build(names: Iterable[str], space: Workspace, detail: str = "") -> Failure:
    """Say that something has to be built, for which nothing is at hand."""
    wanted = sorted(set(names))
    what = _listed(wanted) if wanted else "a package"
    return Failure(
        "unreachable",
        IndexUnreachableError(
            f"offline, and {what} would have to be built from source, for which nothing is at hand.",
            hint="Prepare it once with the network and a lock, or name a folder that has wheels with --find-links.",
            detail=clip(detail),
        ),
        frozenset(map(bare_name, wanted)),
    )


def relay_failure(space: Workspace, detail: str) -> Failure | None:
    """Say what the indexes told the relay, which the installers behind it cannot know."""
    if space.relay is None:
        return None
    for host, answer in space.relay.refused.items():
        return Failure(
            "authentication",
            IndexUnreachableError(
                f"the package index at {host} refuses access: {one_line(answer)}.",
                hint="Give user name and password in its address, or check the ones given.",
                detail=clip(detail),
            ),
        )
    for host, reason in space.relay.unreachable.items():
        return unreachable(space, one_line(space.index.redact(reason)), detail, host=host)
    return None


def with_network(failure: Failure, space: Workspace) -> Failure:
    """Say what the proxy knows and an installer does not: which host was refused or did not answer, and why."""
    if space.proxy is None:
        return failure
    if not space.proxy.refused:
        if failure.kind not in _NETWORK or not space.proxy.unreachable:
            return failure
        host, reason = next(iter(space.proxy.unreachable.items()))
        return unreachable(space, one_line(reason), failure.error.detail, host=_without_port(host, space))
    asked = [f"{host} ({reason})" for host, reason in space.proxy.refused.items()]
    option = " ".join(f"--file-host {host.removesuffix(':443')}" for host in space.proxy.refused)
    if failure.kind == "build":
        hint = f"{failure.error.hint} It asked for {_listed(asked)}; {option} allows that."
        return replace(failure, error=BuildError(failure.error.message, hint=hint, detail=failure.error.detail))
    if failure.kind not in _NETWORK:
        return failure
    return Failure(
        "unreachable",
        IndexUnreachableError(
            f"an installer asked for {_listed(asked)}, which is not allowed.",
            hint=f"If packages come from there, add {option}.",
            detail=failure.error.detail,
        ),
        failure.names,
    )


def _without_port(host: str, space: Workspace) -> str:
    """Return a host as it stands in addresses: with a port only where it is not the usual one."""
    return host if host == space.index.host else host.removesuffix(":443").removesuffix(":80")


def _listed(names: Collection[str]) -> str:
    names = list(names)
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
