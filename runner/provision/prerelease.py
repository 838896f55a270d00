"""Which prereleases may be installed: our own rule, because installers and their releases differ.

A prerelease is taken only if the requirements list that very package with a prerelease in its specifier, or if the
package has never had another kind of release. Comes in: requirements and an installer. Goes out: a resolution that
keeps the rule, and warnings where it cost a newer version of something else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from runner.errors import RequirementError
from runner.provision.diagnosis import Failure, InstallerFailedError
from runner.provision.resolution import Resolution

Resolve = Callable[[AbstractSet[str], AbstractSet[str]], Awaitable[Resolution]]
"""Resolves with prereleases of the first packages allowed and of the second forbidden."""

HasFinal = Callable[[str], Awaitable[bool]]
"""Whether a package has any release that is not a prerelease."""


async def resolve_within_rule(
    requirements: Sequence[str], *, resolve: Resolve, has_final: HasFinal, only_listed: bool = False
) -> tuple[Resolution, tuple[str, ...]]:
    """Resolve without letting a prerelease in that nobody asked for.

    Args:
        requirements: What is asked for, as PEP 508 text.
        resolve: The installer's resolver.
        has_final: The installer's knowledge of the index.
        only_listed: Take a prerelease only if it is listed, even of a package that has no other release.

    Returns:
        The resolution, and one warning for each package that is older than it would be without the rule.

    Raises:
        InstallerFailedError: there is no solution at all, or none that keeps the rule.
    """
    listed = listed_prereleases(requirements)
    without_final: set[str] = set()
    forbidden: dict[str, str] = {}
    first: Resolution | None = None
    while True:
        try:
            resolution = await resolve(listed, forbidden.keys())
        except InstallerFailedError as error:
            if forbidden and error.failure.kind in ("conflict", "no-version", "no-wheel", "unknown-package"):
                raise InstallerFailedError(_needs(forbidden, error.failure)) from None
            raise
        first = first or resolution
        unasked = {}
        for name, versions in resolution.versions.items():
            prereleases = [version for version in versions if _is_prerelease(version)]
            if not prereleases or name in listed or name in without_final or name in forbidden:
                continue
            if only_listed or await has_final(name):
                unasked[name] = prereleases[-1]
            else:
                without_final.add(name)
        if not unasked:
            return resolution, _older(first, resolution, forbidden)
        forbidden.update(unasked)


def listed_prereleases(requirements: Sequence[str]) -> frozenset[str]:
    """Return canonical names of packages whose specifier names a prerelease, or that are listed by direct reference."""
    names = set()
    for line in requirements:
        requirement = Requirement(line)
        named = any(
            _is_prerelease(specifier.version.removesuffix(".*"))
            for specifier in requirement.specifier
            if specifier.operator != "!="
        )
        if requirement.url is not None or named:
            names.add(canonicalize_name(requirement.name))
    return frozenset(names)


def _is_prerelease(version: str) -> bool:
    try:
        return Version(version).is_prerelease
    except InvalidVersion:
        return False


def _needs(forbidden: Mapping[str, str], failure: Failure) -> Failure:
    lines = " and ".join(f'"{name}=={version}"' for name, version in sorted(forbidden.items()))
    what = " and ".join(f"{name} {version}" for name, version in sorted(forbidden.items()))
    are = "is a prerelease" if len(forbidden) == 1 else "are prereleases"
    return Failure(
        "no-version",
        RequirementError(
            f"the requirements can only be met with {what}, which {are} that the bundle does not list.",
            hint=f"Add {lines} to pip_dependencies to allow it.",
            detail=failure.error.detail or failure.error.message,
        ),
        failure.names | frozenset(forbidden),
    )


def _older(first: Resolution, final: Resolution, forbidden: Mapping[str, str]) -> tuple[str, ...]:
    warnings = []
    for name, version in final.packages.items():
        newer = first.packages.get(name, "")
        if name in forbidden or not newer or not version or Version(version) >= Version(newer):
            continue
        lines = " and ".join(f'"{other}=={unlisted}"' for other, unlisted in sorted(forbidden.items()))
        warnings.append(
            f"{name} {version} is installed instead of {newer}, which needs a prerelease the bundle does not list; "
            f"add {lines} to pip_dependencies for the newer one."
        )
    return tuple(warnings)
