"""What provisioning refuses because of how it was asked: nothing from the network, nothing from source, nothing new."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from runner.errors import IndexUnreachableError, RequirementError
from runner.provision.diagnosis import Failure, bare_name, clip, one_line, unreachable
from runner.provision.workspace import Workspace

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


def _listed(names: Collection[str]) -> str:
    names = list(names)
    if len(names) > SHOWN:
        return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
