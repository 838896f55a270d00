"""Makes a venv with nothing in it, not even pip, by writing what one consists of.

For a CPython on Linux that is a folder for packages, a link to the interpreter and `pyvenv.cfg` (PEP 405). No program
is started for it and no library loaded: loading virtualenv takes longer than everything else that is done in this
process for a new venv. There is no start-up file (`.pth`) either, so nothing runs at a start but the interpreter.
"""

from __future__ import annotations

from pathlib import Path

from runner.provision.interpreter import Interpreter


def make_empty_venv(folder: Path, interpreter: Interpreter) -> None:
    """Make a venv.

    Args:
        folder: Where; it must not exist yet.
        interpreter: What it is made from.

    Raises:
        OSError: it cannot be written.
    """
    site_packages_of(folder, interpreter).mkdir(parents=True)
    # where a distribution's CPython keeps compiled packages apart, both names lead to one folder
    (folder / "lib64").symlink_to("lib")
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "python").symlink_to(interpreter.path)
    for name in ("python3", f"python{interpreter.series}"):
        (bin_folder / name).symlink_to("python")
    lines = {
        "home": str(interpreter.path.parent),
        "implementation": "CPython",
        "version": interpreter.version,
        "executable": str(interpreter.path),
        "include-system-site-packages": "false",
    }
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    (folder / "pyvenv.cfg").write_text(text, encoding="utf-8")


def site_packages_of(folder: Path, interpreter: Interpreter) -> Path:
    """Return the folder for packages of a venv that is made from an interpreter."""
    name = f"python{interpreter.series}{'t' if interpreter.free_threaded else ''}"
    return folder / "lib" / name / "site-packages"
