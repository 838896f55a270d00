"""Which modules the requirements of a bundle promise to bring."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmax.bundle.capture.sources import top_level


class Owners:
    """Answers which distributions bring a module, as installed here. What is installed is looked at once."""

    def __init__(self) -> None:
        self._by_package: dict[str, set[str]] | None = None

    def of(self, module: str) -> set[str]:
        """Return the canonical names of a module's distributions; empty when no installed one brings it."""
        if self._by_package is None:
            # reads the file list of every installed distribution, so only when somebody asks
            self._by_package = {
                # the name is missing where an installation is damaged
                package: {canonicalize_name(name) for name in distributions if name}
                for package, distributions in importlib.metadata.packages_distributions().items()
            }
        package = top_level(module)
        owners = self._by_package.get(package)
        if owners is None:
            # the file list of an editable installation often names no package at all
            owners = {canonicalize_name(package)} if _is_installed(package) else set()
        return owners


class DeclaredModules:
    """Answers whether a module belongs to one of the declared distributions, as installed here.

    Args:
        pip_dependencies: Valid PEP 508 requirements.
    """

    def __init__(self, pip_dependencies: Iterable[str]) -> None:
        self._declared = {canonicalize_name(Requirement(entry).name) for entry in pip_dependencies}
        self._owners = Owners()

    def __contains__(self, name: str) -> bool:
        return bool(self._declared) and not self._declared.isdisjoint(self._owners.of(name))


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
