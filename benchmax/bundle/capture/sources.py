"""Where modules come from: the author's project, some other folder of source, or an installed package.

Installed means lying in a site-packages directory. Whether distribution metadata exists does not matter, so an
editable installation counts as the source it points to.
"""

from __future__ import annotations

import importlib.machinery
import pkgutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROJECT_MARKER: Final = "pyproject.toml"

_NEVER_SOURCE: Final = frozenset({*sys.stdlib_module_names, "benchmax"})
_NO_FILE_ORIGINS: Final = frozenset({"built-in", "frozen", "namespace"})


def top_level(name: str) -> str:
    """Return the first part of a dotted module name."""
    return name.partition(".")[0]


def source_paths(name: str) -> tuple[Path, ...]:
    """Return where a module lies: its file, its spec's origin and its package folders, resolved.

    A module that is not imported yet is located without executing it or its packages. A name that cannot be
    located has no paths.
    """
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) if module is not None else _locate(name)
    candidates: list[object] = [getattr(module, "__file__", None)]
    if isinstance(spec, importlib.machinery.ModuleSpec):
        if spec.origin not in _NO_FILE_ORIGINS:
            candidates.append(spec.origin)
        candidates.extend(_search_locations(spec))
    paths: dict[Path, None] = {}
    for candidate in candidates:
        if isinstance(candidate, str) and candidate:
            paths[_resolve(candidate)] = None
    return tuple(paths)


def is_locatable(name: str) -> bool:
    """Whether a module could be imported here; nothing is executed to find out."""
    return name in sys.modules or _locate(name) is not None


def project_root(path: Path) -> Path | None:
    """Return the nearest directory at or above `path` that holds a `pyproject.toml`."""
    for directory in (path, *path.parents):
        if (directory / PROJECT_MARKER).is_file():
            return directory
    return None


def site_directories() -> tuple[Path, ...]:
    """Return this interpreter's site-packages and user-site directories, resolved."""
    listed = [*site.getsitepackages(), site.getusersitepackages()]
    listed += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return tuple(dict.fromkeys(_resolve(directory) for directory in listed))


@dataclass(frozen=True, slots=True)
class SourceScope:
    """Tells modules of a project from installed ones.

    Args:
        roots: Project roots; without any, no module is project-local.
        sites: Directories of installed packages, which are never source, even inside a project.
    """

    roots: tuple[Path, ...]
    sites: tuple[Path, ...]
    _paths: dict[str, tuple[Path, ...]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_modules(cls, names: Iterable[str]) -> SourceScope:
        """Return the scope whose roots are those of the named modules."""
        sites = site_directories()
        roots = (_module_root(name, sites) for name in names)
        return cls(roots=tuple(dict.fromkeys(root for root in roots if root is not None)), sites=sites)

    def is_project_local(self, name: str) -> bool:
        """Whether a module lies in one of the projects: nothing outside can import it."""
        return any(_is_under(path, self.roots) for path in self._source_paths(name))

    def is_external_source(self, name: str) -> bool:
        """Whether a module is source too, but of no project of this scope."""
        return any(not _is_under(path, self.roots) for path in self._source_paths(name))

    def _source_paths(self, name: str) -> tuple[Path, ...]:
        if top_level(name) in _NEVER_SOURCE:
            return ()
        if name not in self._paths:
            self._paths[name] = tuple(path for path in source_paths(name) if not _is_under(path, self.sites))
        return self._paths[name]


def _module_root(name: str, sites: tuple[Path, ...]) -> Path | None:
    roots = (project_root(path) for path in source_paths(name) if not _is_under(path, sites))
    return next((root for root in roots if root is not None), None)


def _is_under(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)


def _resolve(path: str) -> Path:
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError):
        # a loop of links or a name no file can have
        return Path(path).absolute()


def _locate(name: str) -> importlib.machinery.ModuleSpec | None:
    # importlib.util.find_spec would import the parent packages
    locations: list[str] | None = None
    spec: importlib.machinery.ModuleSpec | None = None
    for prefix in _prefixes(name):
        loaded = getattr(sys.modules.get(prefix), "__spec__", None)
        spec = loaded or _ask_finders(prefix, locations)
        if spec is None:
            return None
        locations = _search_locations(spec)
    return spec


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    if all(parts):
        for count in range(1, len(parts) + 1):
            yield ".".join(parts[:count])


def _ask_finders(name: str, locations: list[str] | None) -> importlib.machinery.ModuleSpec | None:
    if locations == []:
        return None
    for finder in sys.meta_path:
        try:
            spec = finder.find_spec(name, locations)
        except (ImportError, AttributeError, ValueError, KeyError):
            # finders may rely on the parent being imported; the import system's own does for namespace packages
            continue
        if spec is not None:
            return spec
    return _namespace_spec(name, locations or [])


def _namespace_spec(name: str, locations: list[str]) -> importlib.machinery.ModuleSpec | None:
    portions: list[str] = []
    for location in locations:
        finder = pkgutil.get_importer(location)
        spec = finder.find_spec(name) if finder is not None else None
        if spec is not None:
            portions.extend(spec.submodule_search_locations or ())
    if not portions:
        return None
    namespace = importlib.machinery.ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = portions
    return namespace


def _search_locations(spec: importlib.machinery.ModuleSpec) -> list[str]:
    return [str(location) for location in spec.submodule_search_locations or ()]
