"""Imports an environment class and writes it as an artifact: run by path in the interpreter that is to own it.

Standalone: the standard library and benchmax only. Comes in: a folder with `request.json`. Goes out, in the same
folder: the artifact's two files, and last `result.json`, either `{"ok": true}` or
`{"ok": false, "kind": ..., "message": ..., "hint": ..., "detail": ...}` with kind `usage` or `bundle`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class PackError(Exception):
    """A failure with its kind and a next step."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.hint = hint


def load_module(target: str) -> ModuleType:
    """Import the module part of a target: a file, or a dotted name that the working directory or the venv has."""
    if target.endswith(".py"):
        path = Path(target).resolve()
        if not path.is_file():
            raise PackError("usage", f"no such file: {target}.")
        # what lies beside the file can be imported, as when it is run
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise PackError("usage", f"{target} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        loader = spec.loader
        run_import(lambda: loader.exec_module(module), target)
        return module
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(target)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise PackError(
            "usage",
            f"no module named {target!r} in {Path.cwd()} or the venv.",
            "Give TARGET as file.py:Class or pkg.mod:Class.",
        )
    run_import(lambda: importlib.import_module(target), target)
    return sys.modules[target]


def run_import(action: Callable[[], object], target: str) -> None:
    """Run an import, and say what it needs when it fails for want of a module."""
    try:
        action()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        hint = f"If {name!r} comes from a package, declare it: --pip {name}." if name else ""
        raise PackError("bundle", f"importing {target} raised ModuleNotFoundError: {error}.", hint) from error
    except BaseException as error:
        raise PackError("bundle", f"importing {target} raised {type(error).__name__}: {error}") from error


def find_class(module: ModuleType, name: str, target: str) -> Any:
    """Look up the class part of a target."""
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            classes = sorted(
                key
                for key, item in vars(module).items()
                if isinstance(item, type) and item.__module__ == module.__name__
            )
            there = f"It defines: {', '.join(classes)}." if classes else "It defines no class."
            raise PackError("usage", f"{target} has no {name!r}.", there) from None
    return value


def pack(folder: Path) -> None:
    """Do what `request.json` says."""
    from benchmax.bundle import BundlingError, dump_bundle

    request = json.loads((folder / "request.json").read_text("utf-8"))
    module_part, _, class_part = request["target"].rpartition(":")
    module = load_module(module_part)
    env_class = find_class(module, class_part, module_part)
    local = [module, *(load_module(name) for name in request["local_modules"])]
    try:
        bundle = dump_bundle(
            env_class,
            constructor_args=request["arguments"],
            pip_dependencies=request["requirements"],
            local_modules=local,
        )
    except BundlingError as error:
        raise PackError("bundle", str(error)) from error
    (folder / "env-cls.pkl").write_bytes(bundle.pickled)
    (folder / "env-metadata.json").write_bytes(bundle.metadata.to_json_bytes())


def main() -> None:
    """Pack, and leave a result whatever happens."""
    folder = Path(sys.argv[1])
    try:
        pack(folder)
        result: dict[str, object] = {"ok": True}
    except PackError as error:
        cause = error.__cause__
        detail = "".join(traceback.format_exception(cause)) if cause is not None else ""
        result = {"ok": False, "kind": error.kind, "message": str(error), "hint": error.hint, "detail": detail}
    except BaseException as error:  # noqa: BLE001 - the author's module may raise anything while it is looked at
        text = f"packing raised {type(error).__name__}: {error}"
        result = {"ok": False, "kind": "bundle", "message": text, "hint": "", "detail": traceback.format_exc()}
    (folder / "result.json").write_text(json.dumps(result), "utf-8")


if __name__ == "__main__":
    main()
