"""The canonical spelling of a bundle's requirements.

Requirements come in as their author wrote them and go out as a sorted tuple in which every project occurs once and
every entry has exactly one spelling, so that equal requirements give equal metadata and equal digests.
"""

from __future__ import annotations

from collections.abc import Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def normalize_dependencies(dependencies: object) -> tuple[str, ...]:
    """Return the requirements in canonical form: `Widget[B,a] < 2, >= 1` becomes `widget[a,b]<2,>=1`.

    Args:
        dependencies: A sequence of PEP 508 requirement strings.

    Returns:
        One rendered requirement per project, sorted as text. Normalising the result again changes nothing.

    Raises:
        TypeError: not a sequence, or a single string.
        ValueError: an entry is blank or not a requirement, or two entries name the same project.
    """
    if isinstance(dependencies, (str, bytes, bytearray)) or not isinstance(dependencies, Sequence):
        raise TypeError(
            "pip_dependencies must be a sequence of requirement strings, "
            f'got {type(dependencies).__name__}. Write ["name>=1"].'
        )
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
