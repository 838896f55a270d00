"""Pages whose code blocks are run: in order, in one folder and one shell, as a reader would.

What becomes of a block is decided by its language and the words after it.

| block | is |
|---|---|
| `python` whose first line is `# FILE.py`; any with `file=FILE` | written to that file |
| `python` | run by itself, which must end well and without a warning |
| `console` | each line after `$ ` is run; what is shown below it must come out, `…` stands for anything |
| `console fails` | the same, but its last command fails, and what it says on standard error is shown, too |
| `diff file=FILE` | applied to the file: what it takes away and keeps must be there exactly once |
| `json` | read, if it has no file |
| `toml`, `ini`, `nginx` | written to its file |
| `sh` | for machines that a test does not have: not run |

`python -m tests.pages.running PAGE` does a page once with an empty cache and once more with what that left, and
shows how long each command took.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LANGUAGES: Final = frozenset({"python", "console", "diff", "json", "jsonl", "toml", "ini", "nginx", "sh"})

_FENCE: Final = re.compile(r"^```(\S+)(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
_FILE_LINE: Final = re.compile(r"# (\S+\.py)\n")
_PROGRESS: Final = re.compile(r"\[ +[\d.]+s\] ")


@dataclass(frozen=True)
class Block:
    """One block of code, and where it begins."""

    language: str
    words: tuple[str, ...]
    text: str
    place: str

    @property
    def file(self) -> str | None:
        """The file that it is, or changes."""
        for word in self.words:
            if word.startswith("file="):
                return word.removeprefix("file=")
        named = _FILE_LINE.match(self.text) if self.language == "python" else None
        return named[1] if named else None


@dataclass(frozen=True)
class Command:
    """A command line, and what a page shows below it."""

    line: str
    shown: str


def blocks(page: str, name: str) -> list[Block]:
    """Return the blocks of a page."""
    return [
        Block(found[1], tuple(found[2].split()), found[3], f"{name}:{page.count(chr(10), 0, found.start()) + 1}")
        for found in _FENCE.finditer(page)
    ]


def commands(text: str) -> list[Command]:
    """Return the commands of a console block; a line that ends with a backslash goes on in the next one."""
    assert text.startswith("$ "), text
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        split = re.fullmatch(r"((?:.*\\\n)*.*\n)((?:.*\n)*)", part)
        assert split is not None, part
        found.append(Command(split[1].strip(), split[2]))
    return found


def matches(shown: str, came: str) -> bool:
    """Whether output is what a page shows, apart from the widths of spaces and what `…` stands for."""
    pattern = ""
    for line in _plain(shown):
        pattern += r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(came))) is not None


def _plain(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip("\n").splitlines()]


class Shell:
    """A shell that keeps its folder, variables and jobs from one command to the next."""

    def __init__(self, process: subprocess.Popen[str], place: Path, folder: Path) -> None:
        self._process = process
        self._place = place
        self._count = 0
        self.folder = folder

    def run(self, line: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, standard output and standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # files of its own, since a job may still write to those of the command that began it
        self._count += 1
        out, err = self._place / f"{self._count}.out", self._place / f"{self._count}.err"
        self._process.stdin.write(
            f'{{ {line}\n}} >{out} 2>{err} </dev/null; printf \'%s %s\\n\' "$?" "$PWD"\n',
        )
        self._process.stdin.flush()
        code, _, folder = self._process.stdout.readline().rstrip("\n").partition(" ")
        assert folder, f"the shell ended in: {line}"
        self.folder = Path(folder)
        return int(code), out.read_text(), err.read_text()


@contextmanager
def shell(folder: Path, environ: Mapping[str, str]) -> Iterator[Shell]:
    """Start a shell in a folder; its jobs end with it."""
    with tempfile.TemporaryDirectory() as place:
        process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Shell(process, Path(place), folder)
        finally:
            # the shell reads what it does line by line, and ends when there is no more
            process.communicate("kill $(jobs -p) 2>/dev/null; wait\n")


def run_page(page: str, name: str, folder: Path, cache: Path) -> list[tuple[str, float]]:
    """Do everything that a page says, and compare what comes out with what it shows.

    Returns:
        Its commands and the seconds they took.
    """
    took: list[tuple[str, float]] = []
    # the same in every run of the page, and free now
    with socket.create_server(("127.0.0.1", 0)) as probe:
        page = page.replace("8123", str(probe.getsockname()[1]))
    environ = {
        # pytest prints whole messages where one of these says that nobody is looking
        **{
            key: value
            for key, value in os.environ.items()
            if not key.startswith("PYTEST") and key not in {"CI", "BUILD_NUMBER"}
        },
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BENCHMAX_CACHE_DIR": str(cache),
        "COLUMNS": "200",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # a plugin of our own tests, which complains about projects that do not know it
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider",
    }
    with shell(folder, environ) as terminal:
        for block in blocks(page, name):
            assert block.language in LANGUAGES, f"{block.place}: a block of {block.language} is not run"
            took += _do(block, terminal)
    return took


def _do(block: Block, terminal: Shell) -> Iterator[tuple[str, float]]:
    if block.language == "console":
        listed = commands(block.text)
        for command in listed:
            fails = "fails" in block.words and command is listed[-1]
            began = time.monotonic()
            _run(command, terminal, block.place, fails=fails)
            yield command.line, time.monotonic() - began
    elif block.file is not None:
        path = terminal.folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_changed(path.read_text(), block) if block.language == "diff" else block.text)
    elif block.language == "python":
        script = terminal.folder / ".block.py"
        script.write_text(block.text)
        code, out, err = terminal.run("python -W error .block.py")
        script.unlink()
        assert (code, err) == (0, ""), f"{block.place}: exit code {code}\n{out}{err}"
    elif block.language != "sh":
        assert block.language in ("json", "jsonl"), f"{block.place}: a {block.language} names its file"
        for text in block.text.splitlines() if block.language == "jsonl" else [block.text]:
            json.loads(text)


def _run(command: Command, terminal: Shell, place: str, *, fails: bool) -> None:
    code, out, err = terminal.run(command.line)
    said = "\n".join(line for line in err.splitlines() if not _PROGRESS.match(line))
    assert (code != 0) == fails, f"{place}: {command.line}\nexit code {code}\n{out}{said}"
    came = out + said if fails else out
    if command.shown:
        assert matches(command.shown, came), f"{place}: {command.line}\nshown:\n{command.shown}\ncame:\n{came}"


def _changed(text: str, block: Block) -> str:
    """Apply a diff, whose lines begin with a space, `-` or `+`."""
    lines = [(line[:1], line[1:]) for line in block.text.splitlines()]
    old = "".join(f"{line}\n" for sign, line in lines if sign != "+")
    new = "".join(f"{line}\n" for sign, line in lines if sign != "-")
    assert text.count(old) == 1, f"{block.place}: {block.file} has {text.count(old)} times:\n{old}"
    return text.replace(old, new)


def main() -> None:
    """Show how long the commands of a page take."""
    path = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        runs = []
        for name in ("fresh", "warm"):
            (Path(place) / name).mkdir()
            runs.append(run_page(path.read_text("utf-8"), path.name, Path(place) / name, Path(place) / "cache"))
    for (line, fresh), (_, warm) in zip(*runs, strict=True):
        print(f"{fresh:6.1f} {warm:6.1f}  {line}")


if __name__ == "__main__":
    main()
