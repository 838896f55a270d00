"""Imports an environment class and writes it as an artifact: run by path in the interpreter that is to own it.

Standalone: the standard library and benchmax only. Comes in: a folder with `request.json`. Goes out, in the same
folder: the artifact's two files, unless the class cannot be packed, and last `result.json`, either
`{"ok": true, "report": ..., "facts": ...}` with what an examination found, or
`{"ok": false, "kind": ..., "message": ..., "hint": ..., "detail": ...}` with kind `usage` or `bundle`. Of a benchmax
that examines nothing the report is `null`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmax import bundle as bundling
from benchmax.bundle import Bundle, BundlingError, dump_bundle
from benchmax.envs import Environment


class PackError(Exception):
    """A failure with its kind and a next step."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint


def load_module(target: str, option: str, *, here: bool) -> ModuleType:
    """Import a module: a file, or a dotted name that the working directory or the venv has.

    Args:
        target: The file or name.
        option: What of the command line named it.
        here: Whether the venv is the caller's own, not one made for the bundle.
    """
    if target.endswith(".py"):
        path = Path(target).resolve()
        if not path.is_file():
            raise PackError("usage", f"no such file: {target}.")
        if path.stem in sys.stdlib_module_names or path.stem == "benchmax":
            raise PackError(
                "usage", f"{target} has the name of the module {path.stem!r} that others import.", "Rename the file."
            )
        # what lies beside the file can be imported, as when it is run
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise PackError("usage", f"{target} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        loader = spec.loader
        run_import(lambda: loader.exec_module(module), target, here=here)
        return module
    sys.path.insert(0, str(Path.cwd()))
    found = None

    def find() -> None:
        nonlocal found
        # imports the packages above the module
        try:
            found = importlib.util.find_spec(target)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{target}.".startswith(f"{error.name}."):
                raise

    run_import(find, target, here=here)
    if found is None:
        raise PackError(
            "usage",
            f"{option}: no module named {target!r} in {Path.cwd()} or the venv.",
            "Run the command from the folder that holds it, or name the package that has it: --pip REQ.",
        )
    run_import(lambda: importlib.import_module(target), target, here=here)
    return sys.modules[target]


def run_import(action: Callable[[], object], target: str, *, here: bool) -> None:
    """Run an import, and say what it needs when it fails for want of a module."""
    try:
        action()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        how = f"install it here: pip install {name}" if here else f"declare it: --pip {name}"
        hint = f"If {name!r} comes from a package, {how}." if name else ""
        raise PackError("bundle", f"importing {target} raised {described(error)}.", hint) from error
    except BaseException as error:
        raise PackError("bundle", f"importing {target} raised {described(error)}.") from error


def described(error: BaseException) -> str:
    """Type, text and place of an exception; the place is the last one in the author's own files."""
    name, text = type(error).__name__, str(error).rstrip(".")
    place = ""
    if not isinstance(error, SyntaxError):
        own = [
            f"{Path(frame.filename).name}, line {frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename != __file__ and not frame.filename.startswith((sys.prefix, sys.base_prefix, "<"))
        ]
        place = f" ({own[-1]})" if own else ""
    return f"{name}: {text}{place}" if text else f"{name}{place}"


def find_class(module: ModuleType, name: str, target: str) -> type[Environment[Any, Any]]:
    """Look up the class part of a target."""
    classes = sorted(
        key
        for key, item in vars(module).items()
        if isinstance(item, type) and issubclass(item, Environment) and item.__module__ == module.__name__
    )
    there = f"Its environments: {', '.join(classes)}." if classes else "It defines no environment."
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise PackError("usage", f"{target} has no {name!r}.", there) from None
    if not isinstance(value, type):
        raise PackError("usage", f"{target}:{name} is no class but a value of type {type(value).__name__}.", there)
    if not issubclass(value, Environment):
        raise PackError("usage", f"{target}:{name} does not derive from benchmax.envs.Environment.", there)
    return value


def check_arguments(env_class: type, arguments: dict[str, object]) -> None:
    """Refuse arguments that the constructor does not take, which would fail only where the bundle is run."""
    try:
        signature = inspect.signature(env_class)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        taken = str(signature.replace(return_annotation=inspect.Signature.empty))
        raise PackError(
            "usage",
            f"{env_class.__qualname__}{taken if len(taken) <= 300 else '(…)'}: {error}.",
            "Give its arguments as --arg NAME=JSON.",
        ) from None


def pack(folder: Path) -> dict[str, object]:
    """Do what `request.json` says, and return the result."""
    request = json.loads((folder / "request.json").read_text("utf-8"))
    here = bool(request["here"])
    module_part, _, class_part = request["target"].rpartition(":")
    module = load_module(module_part, "TARGET", here=here)
    env_class = find_class(module, class_part, module_part)
    local = [module, *(load_module(name, "--local-module", here=here) for name in request["local_modules"])]
    bundle, report, facts = examined(env_class, request["arguments"], request["requirements"], local)
    check_arguments(env_class, request["arguments"])
    if bundle is not None:
        (folder / "env-cls.pkl").write_bytes(bundle.pickled)
        (folder / "env-metadata.json").write_bytes(bundle.metadata.to_json_bytes())
    return {"ok": True, "report": report, "facts": facts}


def examined(
    env_class: type, arguments: dict[str, object], requirements: list[str], local: list[ModuleType]
) -> tuple[Bundle | None, object, object]:
    """Pack the class; return the bundle if there is one, the report on it, and the facts that go with it."""
    if not hasattr(bundling, "examine"):
        # another release, which the requirements asked for
        try:
            bundle = dump_bundle(
                env_class, constructor_args=arguments, pip_dependencies=requirements, local_modules=local
            )
        except BundlingError as error:
            raise PackError("bundle", str(error)) from error
        return bundle, None, None
    report = bundling.examine(env_class, constructor_args=arguments, pip_dependencies=requirements, local_modules=local)
    if report.bundle is None and not report.by_value:
        # nothing that could be looked at
        raise PackError("bundle", " ".join(f"{one.message}." for one in report.findings))
    return report.bundle, report.as_json(), None if report.bundle is None else report.facts()


def main() -> None:
    """Pack, and leave a result whatever happens."""
    folder = Path(sys.argv[1])
    try:
        result = pack(folder)
    except PackError as error:
        cause = error.__cause__
        detail = "".join(traceback.format_exception(cause)) if cause is not None else ""
        result = {"ok": False, "kind": error.kind, "message": str(error), "hint": error.hint, "detail": detail}
    except BaseException as error:  # noqa: BLE001 - the author's module may raise anything while it is looked at
        text = f"packing raised {described(error)}."
        result = {"ok": False, "kind": "bundle", "message": text, "hint": "", "detail": traceback.format_exc()}
    (folder / "result.json").write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    main()
