"""What is refused, because it would fail where the bundle is loaded: A local, B external, C delayed references."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Final

from benchmax.bundle.capture.imports import DelayedImport
from benchmax.bundle.capture.references import References
from benchmax.bundle.capture.sources import SourceScope, source_paths
from benchmax.bundle.errors import BundlingError

_NAMES_SHOWN: Final = 5

logger = logging.getLogger("benchmax.bundle")


def refuse_local_references(
    references: References, scope: SourceScope, *, registered: Sequence[ModuleType], captured: Collection[str]
) -> None:
    """Guard A: no project-local module may be left for the runtime to import.

    Args:
        references: What the finished pickle refers to.
        scope: Says what is project-local.
        registered: Modules the author passed in `local_modules`.
        captured: Those of the references whose module does go by value, but some of its objects do not.

    Raises:
        BundlingError: one is left.
    """
    missing = [name for name in references.modules if scope.is_project_local(name)]
    if not missing:
        return
    text = (
        "The bundle refers to modules of this project that nothing outside it can import: "
        f"missing local_modules=[{', '.join(missing)}]."
    )
    if registered:
        text += f" Already registered: [{', '.join(sorted(module.__name__ for module in registered))}]."
    text += _described(missing, references)
    if uncaptured := [name for name in missing if name not in captured]:
        text += (
            f" Pass local_modules=[{', '.join(uncaptured)}], or leave auto_local_modules=True, which captures "
            "modules that can be imported here."
        )
    raise BundlingError(text + _by_name_only([name for name in missing if name in captured], references)).by("local")


def refuse_external_source(
    references: References, scope: SourceScope, *, declared: Collection[str], captured: Collection[str]
) -> None:
    """Guard B: source of another folder must be passed or declared.

    Args:
        references: What the finished pickle refers to.
        scope: Says what is external source.
        declared: Those of the references that `pip_dependencies` bring.
        captured: Those of the references whose module does go by value, but some of its objects do not.

    Raises:
        BundlingError: a module is neither.
    """
    outside = [name for name in references.modules if scope.is_external_source(name) and name not in declared]
    if not outside:
        return
    names = ", ".join(outside)
    text = f"The bundle refers to source outside the environment project: {names}.{_described(outside, references)}"
    if uncaptured := [name for name in outside if name not in captured]:
        text += (
            f" Pass the module objects (local_modules=[{', '.join(uncaptured)}]) to take their source along, or name"
        )
    else:
        text += " Passing them in local_modules is not enough; name"
    text += " the distributions that bring them in pip_dependencies."
    raise BundlingError(text + _by_name_only([name for name in outside if name in captured], references)).by("external")


def warn_of_prompt_references(references: References) -> None:
    """Warn of objects typed into a prompt or notebook that pickle by name only: no runtime has that `__main__`."""
    if references.names.get("__main__") and not source_paths("__main__"):
        logger.warning("The bundle will not load in another process.%s", _by_name_only(["__main__"], references))


def refuse_delayed_imports(delayed: Sequence[DelayedImport]) -> None:
    """Guard C: an import that runs later finds no captured module under its name.

    Args:
        delayed: The offending imports.

    Raises:
        BundlingError: there is one.
    """
    if delayed:
        names = ", ".join(sorted({one.module for one in delayed}))
        places = "; ".join(
            dict.fromkeys(
                f"{one.module} in {one.function} ({one.file}:{one.line})"
                for one in sorted(delayed, key=lambda one: (one.module, one.file, one.line))
            )
        )
        raise BundlingError(
            f"The bundle contains a delayed import of source that will not be importable remotely: {names}. "
            f"Found: {places}. Captured modules travel by value, not under their import names, so local_modules "
            "does not help: move the import to the top of its module, or name the distribution that brings it in "
            "pip_dependencies."
        ).by("delayed")


def _described(modules: Sequence[str], references: References) -> str:
    return " Referenced: " + "; ".join(_describe(name, references.names[name]) for name in modules) + "."


def _describe(module: str, names: Sequence[str]) -> str:
    paths = source_paths(module)
    place = f" ({paths[0]})" if paths else ""
    wanted = ", ".join(names[:_NAMES_SHOWN]) + (", ..." if len(names) > _NAMES_SHOWN else "")
    return f"{module}{place}: {wanted or 'the module itself'}"


def _by_name_only(captured: Sequence[str], references: References) -> str:
    if not captured:
        return ""
    objects = ", ".join(
        f"{module}.{name} ({_type_name(module, name)})" if name else f"{module} (the module itself)"
        for module in captured
        for name in references.names[module][:_NAMES_SHOWN] or ("",)
    )
    return (
        f" Captured, but with objects that pickle by name only: {objects}. "
        "Make them inside a function that runs when they are first needed, or replace them by plain functions."
    )


def _type_name(module: str, qualified_name: str) -> str:
    value: object = sys.modules.get(module)
    for part in qualified_name.split("."):
        value = getattr(value, part, None)
    return f"{type(value).__module__}.{type(value).__qualname__}"
