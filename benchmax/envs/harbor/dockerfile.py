"""What of a Dockerfile a sandbox without images can do as it is written.

Comes in: the Dockerfile of a task's environment. Goes out: a `Recipe`: base image, folder to work in, variables, user,
files to copy. What would change the image in another way is listed in `Recipe.beyond`, and left to the caller.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

PLAIN_IMAGES: Final = ("buildpack-deps", "debian", "python", "ubuntu")
"""Images with nothing beyond a usual GNU/Linux system, its shell and its tools."""

IGNORED: Final = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL"})
"""Instructions that say how a container is started or described, which is not done here."""

_FLAG = re.compile(r"--([a-z]+)=(\S+)\s+")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
_HEREDOC = re.compile(r"(?:^|(?<=\s))\d*<<(-?)([\"']?)([^\s<\"']+)\2(?=\s|$)")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*(\S)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Copy:
    """Files that go from beside the Dockerfile into the sandbox.

    Args:
        sources: Names relative to the Dockerfile's folder; they may hold wildcards.
        target: Absolute path; with a slash at its end, a folder.
        owner: Whose they are to be, or `None` for root's.
        mode: Permissions, or `None` for those they have.
    """

    sources: tuple[str, ...]
    target: str
    owner: str | None = None
    mode: int | None = None


@dataclass(slots=True)
class Recipe:
    """What to make of a fresh sandbox.

    Args:
        image: The base image, or `None` if nothing says.
        workdir: Where commands start.
        variables: Variables of every command.
        user: Who runs commands, or `None` for root.
        folders: Folders that have to be there.
        copies: Files to copy, in order.
        beyond: What cannot be done, each as `<file>:<line>: <instruction>`.
    """

    image: str | None = None
    workdir: str = "/"
    variables: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    folders: list[str] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)


def is_plain(image: str) -> bool:
    """Whether an image is one of `PLAIN_IMAGES`, at any tag and from Docker's own library."""
    name = image.partition("@")[0]
    name = re.sub(r":[^:/]*$", "", name)
    return name.removeprefix("docker.io/").removeprefix("library/") in PLAIN_IMAGES


def read_dockerfile(path: Path) -> Recipe:
    """Read a Dockerfile.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    reader = _Reader(path.name)
    for line, text in _instructions(path.read_text("utf-8-sig")):
        reader.take(line, text)
    return reader.recipe


def _instructions(text: str) -> list[tuple[int, str]]:
    """Split into instructions, each with the number of its first line; comments and empty lines are left out."""
    found: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    lines = iter(enumerate(text.splitlines(), 1))
    escape = "\\"
    for number, raw in lines:
        line = raw.strip()
        if number == 1 and (directive := _ESCAPE.fullmatch(line)):
            escape = directive.group(1)
        if not line or line.startswith("#"):
            continue
        first, so_far = begun or (number, "")
        if line.endswith(escape):
            begun = first, f"{so_far}{line[:-1]} "
            continue
        found.append((first, so_far + line))
        begun = None
        if line.partition("<<")[1]:
            _skip_documents(so_far + line, lines)
    if begun is not None:
        found.append(begun)
    return found


def _skip_documents(instruction: str, lines: Iterator[tuple[int, str]]) -> None:
    """Leave out the documents that follow an instruction: what is in them are no instructions."""
    if instruction.split(maxsplit=1)[0].upper() not in ("ADD", "COPY", "RUN"):
        return
    for tabs, _, name in _HEREDOC.findall(instruction):
        for _, line in lines:
            if (line.lstrip("\t") if tabs else line) == name:
                break


class _Reader:
    """Takes one instruction after the other."""

    def __init__(self, file: str) -> None:
        self.recipe = Recipe()
        self._file = file
        self._arguments: dict[str, str] = {}
        self._before: dict[str, str] = {}
        """Arguments from before the first stage, which a stage has to ask for."""
        self._stages: dict[str, Recipe] = {}

    def take(self, line: int, text: str) -> None:
        word, *after = text.split(maxsplit=1)
        name, rest = word.upper(), "".join(after)
        done = name in IGNORED or (_HEREDOC.search(rest) is None and self._do(name, rest))
        if not done:
            self.recipe.beyond.append(f"{self._file}:{line}: {' '.join(f'{name} {rest}'.split())[:120]}")

    def _do(self, name: str, rest: str) -> bool:
        """Take in one instruction; false if it is beyond what can be done."""
        recipe = self.recipe
        try:
            match name:
                case "FROM":
                    return self._from(rest)
                case "ARG":
                    for pair in shlex.split(rest):
                        key, given, value = pair.partition("=")
                        if given:
                            self._arguments[key] = self._filled(value)
                        elif key in self._before:
                            self._arguments[key] = self._before[key]
                case "ENV":
                    for key, value in _pairs(rest):
                        recipe.variables[key] = self._filled(value)
                case "WORKDIR":
                    recipe.workdir = str(PurePosixPath(recipe.workdir) / self._filled(rest))
                    recipe.folders.append(recipe.workdir)
                case "USER":
                    recipe.user = self._filled(rest).partition(":")[0]
                case "VOLUME":
                    recipe.folders += [self._absolute(word) for word in self._words(rest)]
                case "COPY":
                    return self._copy(rest)
                case "ADD":
                    # an archive would be unpacked, and a URL fetched
                    plain = not re.search(r"://|git@|\.(tar|tgz|tbz2?|txz|gz|bz2|xz|zst)\b", rest)
                    return plain and self._copy(rest)
                case _:
                    return False
        except ValueError:
            return False
        return True

    def _from(self, rest: str) -> bool:
        words = [word for word in self._filled(rest).split() if not word.startswith("--platform=")]
        if not words:
            return False
        alone = self.recipe.image is None
        if alone:
            self._before = self._arguments
        # a stage takes the place of the one before, and begins where the one that it names ended
        base = self._stages.get(words[0].lower(), Recipe(image=words[0]))
        self.recipe = _copied(base, beyond=self.recipe.beyond)
        self._arguments = {}
        if len(words) == 3 and words[1].upper() == "AS":
            self._stages[words[2].lower()] = self.recipe
        # what the other stages build is not there
        return alone

    def _copy(self, rest: str) -> bool:
        owner, mode = None, None
        while flag := _FLAG.match(rest):
            rest = rest[flag.end() :]
            match flag.group(1):
                case "chown":
                    owner = self._filled(flag.group(2)).partition(":")[0]
                case "chmod":
                    mode = int(flag.group(2), 8)
                case "link":
                    pass
                case _:
                    return False
        words = [word for word in self._words(rest) if word != "--link"]
        if len(words) < 2 or any(word.startswith("--") or ".." in PurePosixPath(word).parts for word in words[:-1]):
            return False
        *sources, last = words
        target = self._absolute(last)
        if last.endswith("/") or last in (".", "./") or len(sources) > 1:
            target = target.rstrip("/") + "/"
        self.recipe.copies.append(Copy(tuple(source.lstrip("/") or "." for source in sources), target, owner, mode))
        return True

    def _words(self, text: str) -> list[str]:
        """Split arguments, which may be written as a JSON array."""
        words = json.loads(text) if text.startswith("[") else shlex.split(text)
        return [self._filled(str(word)) for word in words]

    def _absolute(self, path: str) -> str:
        return str(PurePosixPath(self.recipe.workdir) / path)

    def _filled(self, text: str) -> str:
        """Put in the values of variables."""
        known = {**self._arguments, **self.recipe.variables}

        def value(found: re.Match[str]) -> str:
            if found.group() == "\\$":
                return "$"
            name = found.group(1) or found.group(2)
            return known.get(name, found.group(3) or "")

        filled = _VARIABLE.sub(value, text)
        if "${" in filled:
            raise ValueError(f"a variable in a form that is not read: {text}")
        return filled


def _copied(recipe: Recipe, beyond: list[str]) -> Recipe:
    return replace(
        recipe,
        variables={**recipe.variables},
        folders=[*recipe.folders],
        copies=[*recipe.copies],
        beyond=beyond,
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    """Read what ENV sets: `A=1 B="x y"`, or the old `A rest of the line`."""
    first = text.split(maxsplit=1)
    if len(first) == 2 and "=" not in first[0]:
        return [(first[0], first[1])]
    pairs = [word.partition("=") for word in shlex.split(text)]
    if not all(given for _, given, _ in pairs):
        raise ValueError(f"ENV without a value: {text}")
    return [(key, value) for key, _, value in pairs]
