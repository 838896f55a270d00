"""Agents whose source code travels inside of a bundle."""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Final

from benchmax.envs.harbor.dep_check import require_harbor

if TYPE_CHECKING:
    from harbor.models.trial.config import AgentConfig

__all__ = ["BundledAgentSource", "BundledHarborAgent"]

_DIGEST_DOMAIN: Final = b"benchmax-bundled-harbor-agent-v1\0"
_PACKAGE_PREFIX: Final = "_benchmax_harbor_agent_"


def _require_path(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise ValueError(f"A bundled agent's file path must be a non-empty string, got {path!r}.")
    canonical = "\0" not in path and "\\" not in path and not path.startswith("/")
    if not canonical or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(
            f"A bundled agent's file path must be relative and canonical, with / between its parts, got {path!r}."
        )


@dataclass(frozen=True, slots=True, repr=False)
class BundledAgentSource:
    """The files of an agent: modules, and what lies beside them.

    Args:
        files: Pairs of a relative path with `/` between its parts, and the file's content; kept sorted by path.

    Raises:
        ValueError: there is no file, a path is given twice, or a path is not relative and canonical.
        TypeError: a content is not `bytes`.
    """

    files: tuple[tuple[str, bytes], ...]
    content_id: str = field(init=False)
    """`sha256:` and the digest of all paths and contents."""

    def __post_init__(self) -> None:
        files = tuple((path, content) for path, content in self.files)
        if not files:
            raise ValueError("BundledAgentSource needs at least one file.")
        seen: set[str] = set()
        for path, content in files:
            _require_path(path)
            if path in seen:
                raise ValueError(f"BundledAgentSource has a duplicate path: {path!r}.")
            seen.add(path)
            given: object = content
            if not isinstance(given, bytes):
                raise TypeError(f"BundledAgentSource needs bytes as content of {path!r}, got {type(given).__name__}.")
        _require_no_file_as_folder(seen)
        files = tuple(sorted(files))
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "content_id", _content_id(files))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> BundledAgentSource:
        """Make one of contents by path.

        Raises:
            ValueError: there is no file, or a path is not relative and canonical.
            TypeError: a content is not `bytes`.
        """
        return cls(tuple(files.items()))

    @classmethod
    def from_directory(cls, root: str | os.PathLike[str], *, files: Iterable[str]) -> BundledAgentSource:
        """Read the listed files below a folder, now.

        Args:
            root: The folder.
            files: Paths below it, with `/` between their parts.

        Raises:
            ValueError: the folder or a file is missing, a path is not relative and canonical, or a symlink is on it.
        """
        folder = Path(root)
        if not folder.is_dir():
            raise ValueError(f"BundledAgentSource.from_directory needs an existing folder, got {os.fspath(root)!r}.")
        return cls(tuple((path, _read_below(folder, path)) for path in files))

    def __repr__(self) -> str:
        return f"BundledAgentSource(content_id={self.content_id!r}, files={len(self.files)})"


def _require_no_file_as_folder(paths: set[str]) -> None:
    for path in sorted(paths):
        for folder in PurePosixPath(path).parents:
            if str(folder) in paths:
                raise ValueError(f"BundledAgentSource has the path {str(folder)!r} both as a file and as a folder.")


def _read_below(folder: Path, path: str) -> bytes:
    _require_path(path)
    place = folder
    for part in path.split("/"):
        place /= part
        if place.is_symlink():
            raise ValueError(f"A bundled agent's files must not be reached through symlinks, but {place} is one.")
    if not place.is_file():
        raise ValueError(f"A bundled agent's file is missing: there is no file at the path {place}.")
    return place.read_bytes()


def _content_id(files: tuple[tuple[str, bytes], ...]) -> str:
    digest = hashlib.sha256(_DIGEST_DOMAIN)
    for path, content in files:
        for part in (path.encode(), content):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return f"sha256:{digest.hexdigest()}"


@dataclass(frozen=True, slots=True)
class BundledHarborAgent:
    """An agent that is loaded from its bundled source instead of an installed package.

    Args:
        config: Harbor's configuration with `import_path` as `module.path:ClassName` below the source; copied.
        source: The source.

    Raises:
        TypeError: not an `AgentConfig`, or not a `BundledAgentSource`.
        ValueError: a `name` is set, the import path has another form, or its module is not in the source.
        ImportError: Harbor is not installed.
    """

    config: AgentConfig = field(repr=False)  # its variables and options may hold secrets
    source: BundledAgentSource

    def __post_init__(self) -> None:
        require_harbor()
        from harbor.models.trial.config import AgentConfig

        config: object = self.config
        if not isinstance(config, AgentConfig):
            raise TypeError(f"BundledHarborAgent.config must be an AgentConfig, got {type(config).__name__}.")
        source: object = self.source
        if not isinstance(source, BundledAgentSource):
            raise TypeError(f"BundledHarborAgent.source must be a BundledAgentSource, got {type(source).__name__}.")
        if config.name is not None:
            raise ValueError(
                f"BundledHarborAgent.config must have import_path and no name, got the name {config.name!r}."
            )
        module, _ = _split_import_path(config.import_path)
        stem = module.replace(".", "/")
        paths = {path for path, _ in source.files}
        if not paths & {f"{stem}.py", f"{stem}/__init__.py"}:
            raise ValueError(
                f"The module {module!r} of the agent's import_path is not in its source: "
                f"add {stem}.py or {stem}/__init__.py."
            )
        object.__setattr__(self, "config", config.model_copy(deep=True))

    def _harbor_config(self) -> AgentConfig:
        """Load the agent's class and return a configuration that names it where Harbor finds it.

        Raises:
            ValueError: the module has no such class.
            TypeError: it is not an agent of Harbor.
            Exception: whatever importing the module raises.
        """
        from harbor.agents.base import BaseAgent

        module_name, class_name = _split_import_path(self.config.import_path)
        package = _loaded_package(self.source)
        with _loading:
            module = importlib.import_module(f"{package}.{module_name}")
        found: object = getattr(module, class_name, None)
        if found is None:
            raise ValueError(f"The bundled agent's module {module_name!r} has no class {class_name!r}.")
        if not isinstance(found, type) or not issubclass(found, BaseAgent):
            raise TypeError(f"The bundled agent {module_name}:{class_name} must be a subclass of Harbor's BaseAgent.")
        return self.config.model_copy(deep=True, update={"import_path": f"{module.__name__}:{class_name}"})


def _split_import_path(import_path: str | None) -> tuple[str, str]:
    module, colon, name = (import_path or "").partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError(
            f"A bundled agent's import_path must have the form module.path:ClassName, got {import_path!r}."
        )
    return module, name


_loading = threading.RLock()
"""Held while an agent is loaded; reentrant, since an agent's module may prepare an agent itself."""

_packages: dict[str, str] = {}
"""Name of the package in which a source was loaded, by content id."""


def _loaded_package(source: BundledAgentSource) -> str:
    """Make a source importable, once per process, and return the name of its package."""
    with _loading:
        if (known := _packages.get(source.content_id)) is not None:
            return known
        package = _PACKAGE_PREFIX + source.content_id.removeprefix("sha256:")
        root = _written(source)
        module = ModuleType(package, "Source of a bundled agent.")
        spec = ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(root)]
        module.__spec__, module.__package__, module.__path__ = spec, package, [str(root)]
        sys.modules[package] = module
        _packages[source.content_id] = package
        return package


def _written(source: BundledAgentSource) -> Path:
    """Write a source to a private folder, read-only, that goes when this process ends."""
    root = Path(tempfile.mkdtemp(prefix="benchmax-harbor-agent-"))
    atexit.register(_remove, root, os.getpid())
    for path, content in source.files:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o400)
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o500)
    return root


def _remove(root: Path, made_by: int) -> None:
    # a forked process has inherited this call, and its parent still needs the files
    if os.getpid() != made_by:
        return
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o700)
    shutil.rmtree(root)
