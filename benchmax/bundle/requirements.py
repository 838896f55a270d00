"""Requirements parsed and rendered: one spelling for each, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def canonical(dependencies: Sequence[object]) -> tuple[str, ...]:
    """Return requirements in canonical form, sorted as text.

    Raises:
        ValueError: an entry is blank or not a requirement, or two entries name the same project.
    """
    rendered: dict[str, str] = {}
    for index, entry in enumerate(dependencies):
        requirement = _parse(index, entry)
        name = canonicalize_name(requirement.name)
        if name in rendered:
            raise ValueError(
                f"pip_dependencies[{index}]: target '{name}' is declared more than once. "
                "Merge the entries into one; markers do not tell them apart."
            )
        rendered[name] = _render(index, name, requirement)
    return tuple(sorted(rendered.values()))


def _parse(index: int, entry: object) -> Requirement:
    if not isinstance(entry, str) or not entry.strip():
        raise ValueError(f"dependency at index {index} must be a non-blank PEP 508 requirement string, got {entry!r}.")
    try:
        return Requirement(entry.strip())
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"dependency at index {index} is not a PEP 508 requirement: {entry!r} ({reason}).") from error


def _render(index: int, name: str, requirement: Requirement) -> str:
    extras = sorted({canonicalize_name(extra) for extra in requirement.extras})
    text = f"{name}[{','.join(extras)}]" if extras else name
    if requirement.url:
        text += f" @ {requirement.url}"
    else:
        text += str(requirement.specifier)
    if requirement.marker is not None:
        # a URL ends at white space only, so without the space the marker would become part of it
        text += f" ; {requirement.marker}" if requirement.url else f"; {requirement.marker}"
    try:
        # a marker value that holds a double quote is printed without escaping it
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(
            f"dependency at index {index} has no canonical PEP 508 form that can be read back: {text!r}."
        ) from error
    return text
