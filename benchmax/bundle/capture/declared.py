"""Which modules the requirements of a bundle promise to bring."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmax.bundle.capture.sources import top_level


class DeclaredModules:
    """Answers whether a module belongs to one of the declared distributions, as installed here.

    Args:
        pip_dependencies: Valid PEP 508 requirements.
    """

    def __init__(self, pip_dependencies: Iterable[str]) -> None:
        self._declared = {canonicalize_name(Requirement(entry).name) for entry in pip_dependencies}
        self._owners: dict[str, set[str]] | None = None

    def __contains__(self, name: str) -> bool:
        if not self._declared:
            return False
        if self._owners is None:
            # reads the file list of every installed distribution, so only when somebody asks
            self._owners = {
                # the name is missing where an installation is damaged
                package: {canonicalize_name(name) for name in distributions if name}
                for package, distributions in importlib.metadata.packages_distributions().items()
            }
        package = top_level(name)
        owners = self._owners.get(package)
        if owners is None:
            # the file list of an editable installation often names no package at all
            owners = {canonicalize_name(package)} if _is_installed(package) else set()
        return not self._declared.isdisjoint(owners)


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
