"""Which versions a worker runs with, checked against a bundle's own pins before anything is looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from runner.errors import RequirementError


def check_pins(
    requirements: Iterable[str], needs: Iterable[str], *, environment: Mapping[str, str], benchmax: str
) -> None:
    """Refuse a requirement that leaves no version the worker could run with.

    Args:
        requirements: What the bundle asks for.
        needs: What benchmax and the worker's code ask for.
        environment: Values of markers where the bundle runs.
        benchmax: Version of this installation.

    Raises:
        RequirementError: the two contradict each other; the text names the pin and the range.
    """
    ranges = {canonicalize_name(need.name): need for need in map(Requirement, needs)}
    for requirement in map(Requirement, requirements):
        need = ranges.get(canonicalize_name(requirement.name))
        if need is None or requirement.url is not None:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate(dict(environment)):
            continue
        if not overlap(requirement.specifier, need.specifier):
            raise RequirementError(
                f"the bundle wants {requirement.name}{requirement.specifier}, but a worker of benchmax {benchmax} "
                f"needs {need.name}{need.specifier}.",
                hint=f"Ask for a version of {need.name} in that range in pip_dependencies, or leave it out.",
            )


def overlap(one: SpecifierSet, other: SpecifierSet) -> bool:
    """Whether some version meets both.

    Version ranges begin at, or right after, a version that one of the specifiers names, if they do not begin at the
    lowest of all; so those are all that have to be tried.
    """
    tried = [Version("0.dev0"), Version("0"), Version("99999")]
    for specifier in (*one, *other):
        try:
            named = Version(specifier.version.removesuffix(".*"))
        except InvalidVersion:
            # `===` compares text: no telling
            return True
        after = f"{named.epoch}!{'.'.join(map(str, named.release))}.0.0.1"
        tried += [named, Version(after)]
        if named.is_prerelease:
            tried.append(Version(named.base_version))
        if specifier.operator == "!=" and specifier.version.endswith(".*"):
            *head, last = named.release
            tried.append(Version(f"{named.epoch}!{'.'.join(map(str, (*head, last + 1)))}"))
    return any(one.contains(v, prereleases=True) and other.contains(v, prereleases=True) for v in tried)
