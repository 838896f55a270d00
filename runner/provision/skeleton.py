"""What an empty venv consists of, so that no package takes the place of a part of it.

A package may bring files for anywhere below a venv's folder: `bin/python`, `pyvenv.cfg` or virtualenv's own start-up
file among them. Such a venv would start something else than the interpreter it says it is made from.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.errors import RequirementError


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The parts of an empty venv.

    Args:
        venv: Its folder.
        parts: By path relative to it: where a link leads, or the SHA-256 of a file.
    """

    venv: Path
    parts: Mapping[str, str]

    @classmethod
    def of(cls, venv: Path) -> Skeleton:
        """Take down what is in a venv now, before packages are put into it.

        Raises:
            OSError: something cannot be read.
        """
        files = [Path(folder) / name for folder, _, names in os.walk(venv) for name in names]
        return cls(venv, {str(path.relative_to(venv)): _part(path) for path in files})

    def check(self, site_packages: Path) -> None:
        """Check that everything is as it was.

        Args:
            site_packages: Where the packages are.

        Raises:
            RequirementError: a package put a file of its own in a part's place; the text names both.
        """
        replaced = [path for path, part in self.parts.items() if _part(self.venv / path) != part]
        if not replaced:
            return
        owners = _owners(site_packages, {os.path.normpath(self.venv / path) for path in replaced})
        who = f"package {' and '.join(map(repr, owners))} puts" if owners else "one of the packages puts"
        raise RequirementError(
            f"{who} a file of its own in the place of {', '.join(sorted(replaced)[:5])}, which belongs to the venv.",
            hint="Ask for another version of it; with this one no interpreter could be trusted.",
        )


def _part(path: Path) -> str:
    try:
        return f"link to {path.readlink()}" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return "gone"


def _owners(site_packages: Path, wanted: set[str]) -> list[str]:
    """Name the packages whose records list one of the wanted files."""
    owners = set()
    for record in site_packages.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", errors="replace", newline="") as lines:
            if any(row and os.path.normpath(site_packages / row[0]) in wanted for row in csv.reader(lines)):
                owners.add(record.parent.name.partition("-")[0].replace("_", "-"))
    return sorted(owners)
