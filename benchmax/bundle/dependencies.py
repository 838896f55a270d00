"""The canonical spelling of a bundle's requirements.

Requirements come in as their author wrote them and go out as a sorted tuple in which every project occurs once and
every entry has exactly one spelling, so that equal requirements give equal metadata and equal digests.
"""

from __future__ import annotations

from collections.abc import Sequence


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
    if not dependencies:
        return ()
    # only now: a worker whose bundle has none would spend a tenth of its start on loading it
    from benchmax.bundle.requirements import canonical

    return canonical(dependencies)
