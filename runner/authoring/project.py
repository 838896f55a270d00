"""A new project: a template's files under the names of the project, all of them or none.

Comes in: a folder that is not there yet, or is empty, and a kind. Goes out: the folder with an environment, its data,
its tests and a page that says how to run them.
"""

from __future__ import annotations

import errno
import io
import shlex
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Final

from runner.authoring.names import Names, names_for
from runner.errors import UsageError

TEMPLATES: Final = Path(__file__).parent / "templates"
KINDS: Final = ("single", "tools", "custom")
"""One question and one answer; several turns with tools; turns of one's own without the stock loop."""

_EVERY: Final = "every"
_MODULE: Final = "starter"
_ENVIRONMENT: Final = "Starter"
_HIDDEN: Final = {"gitignore": ".gitignore"}
"""Under its real name it would decide what of the templates is kept by version control, and by builds."""

_TRANSIENT: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What the machine lacks at the moment: the caller can do nothing about it with another name or place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project on disk.

    Args:
        folder: Where it is.
        kind: One of `KINDS`.
        names: What its parts are called.
        files: Their paths in the folder, sorted.
    """

    folder: Path
    kind: str
    names: Names
    files: tuple[str, ...]

    @property
    def steps(self) -> tuple[str, ...]:
        """Commands that show it at work, one after the other."""
        script = " --model mock:mock.json" if "mock.json" in self.files else ""
        data = " --data data" if any(name.startswith("data/") for name in self.files) else ""
        return (
            f"cd {shlex.quote(str(self.folder))}",
            f"benchmax bundle {self.names.target} --out bundle",
            f"benchmax run bundle{data}{script}",
            "python -m pytest",
        )


def create_project(folder: Path, kind: str = KINDS[0]) -> Project:
    """Write a new project; an interruption or an error leaves nothing of it.

    Args:
        folder: The folder to make; its last part is the project's name.
        kind: One of `KINDS`.

    Raises:
        UsageError: there is no such kind, the name cannot be one, the folder holds something, or it cannot be made.
        OSError: the disk is full or broken.
    """
    if kind not in KINDS:
        raise UsageError(f"--kind {kind}: there is no such kind.", hint=f"There are {', '.join(KINDS)}.")
    template = _template(kind)
    names = names_for(folder.name, used=_identifiers(template))
    _check_free(folder)
    files = {PurePath(_named(str(path), names)): _named(text, names) for path, text in template.items()}
    try:
        # beside its place, so that it appears there whole
        with tempfile.TemporaryDirectory(prefix=".benchmax-init-", dir=folder.parent) as workshop:
            made = Path(workshop) / folder.name
            for path, text in files.items():
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_text(text, "utf-8")
            # takes the place of an empty folder, and of nothing else
            made.rename(folder)
    except OSError as error:
        if error.errno in _TRANSIENT:
            raise
        raise UsageError(f"cannot make {folder}: {error.strerror}.", hint="Choose another place.") from error
    return Project(folder=folder, kind=kind, names=names, files=tuple(sorted(map(str, files))))


def _template(kind: str) -> dict[PurePath, str]:
    """Read the files of a kind, by their paths in a project."""
    found: dict[PurePath, str] = {}
    for part in (_EVERY, kind):
        for path in sorted((TEMPLATES / part).rglob("*")):
            # installers leave compiled modules beside the sources
            if path.is_file() and "__pycache__" not in path.parts:
                place = path.relative_to(TEMPLATES / part).with_name(_HIDDEN.get(path.name, path.name))
                found[PurePath(place)] = path.read_text("utf-8")
    return found


def _identifiers(template: dict[PurePath, str]) -> set[str]:
    """Every name that the template's code uses, except for the one that is replaced."""
    found = set()
    for path, text in template.items():
        if path.suffix == ".py":
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            found |= {token.string for token in tokens if token.type == tokenize.NAME}
    return found - {_ENVIRONMENT}


def _named(text: str, names: Names) -> str:
    return text.replace(_MODULE, names.module).replace(_ENVIRONMENT, names.environment)


def _check_free(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"cannot make {folder}: something else is there.", hint="Choose another name.")
    if not folder.parent.is_dir():
        what = "is not a folder" if folder.parent.exists() else "does not exist"
        raise UsageError(f"cannot make {folder}: {folder.parent} {what}.", hint="Make it first, or choose another.")
    try:
        taken = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot look into {folder}: {error.strerror}.", hint="Choose another name.") from error
    if taken:
        raise UsageError(f"cannot make {folder}: it holds something already.", hint="Choose another name.")
