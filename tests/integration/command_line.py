"""The real `benchmax` command in a process of its own, watched for everything it might leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmax.bundle import dump_bundle
from runner.artifact import write_artifact
from tests.children import children

FIXTURES: Final = Path(__file__).parents[1] / "fixtures" / "cli"
PROGRAM: Final = Path(sys.executable).with_name("benchmax")
PR_SET_CHILD_SUBREAPER: Final = 36
GONE_S: Final = 2.0
"""How long what was started may outlive the command."""


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def error(self, code: int) -> str:
        """Check that it failed as failures should look, and return what it said."""
        assert "Traceback" not in self.err + self.out, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("benchmax: error: ")]
        assert (self.code, len(lines)) == (code, 1), self.err
        assert not self.out, "a result beside an error"
        return lines[0].removeprefix("benchmax: error: ")

    def good(self) -> str:
        """Check that it ended well and return its standard output."""
        assert self.code == 0, self.err
        assert "benchmax: error" not in self.err
        return self.out


class Running:
    """A command under way, whose standard error is read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._err = b""

    def wait_for(self, text: str) -> None:
        """Return once a line of standard error holds a text."""
        assert self.process.stderr is not None
        # unbuffered, so that nothing beyond the line is taken from `finish`
        while line := self.process.stderr.readline():
            self._err += line
            if text.encode() in line:
                return
        raise AssertionError(f"{text!r} was never said: {self._err.decode()}")

    def wait_until_there_is(self, path: Path) -> None:
        """Return once a file exists."""
        while not path.exists():
            assert self.process.poll() is None, "the command ended"
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command alone, not to its children."""
        self.process.send_signal(number)

    def finish(self) -> Finished:
        """Wait for the end."""
        out, err = self.process.communicate(timeout=100)
        return Finished(self.process.returncode, (out or b"").decode(), (self._err + err).decode())


class CommandLine:
    """Runs commands in a folder of their own, with a folder for temporary files of their own.

    Args:
        cache: The cache folder.
        root: Where the two folders are made.
    """

    def __init__(self, cache: Path, root: Path) -> None:
        self.cache = cache
        self.cwd = root / "cwd"
        self.tmp = root / "tmp"
        self.cwd.mkdir()
        self.tmp.mkdir()

    def artifact(self, name: str = "artifact", environment: str = "Tiny", **arguments: object) -> Path:
        """Bundle a class of the fixture module as it is bundled in process."""
        source = self.source("tiny.py")
        spec = importlib.util.spec_from_file_location("tiny", source)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["tiny"] = module
        try:
            spec.loader.exec_module(module)
            bundle = dump_bundle(getattr(module, environment), constructor_args=arguments, local_modules=[module])
        finally:
            del sys.modules["tiny"]
        source.unlink()
        return write_artifact(bundle, self.cwd / name).path or Path()

    def source(self, name: str) -> Path:
        """Copy a fixture module to the working directory."""
        return Path(shutil.copy(FIXTURES / name, self.cwd / name))

    def __call__(
        self, *arguments: str, makes: str = "", env: Mapping[str, str] | None = None, out: int = subprocess.PIPE
    ) -> Finished:
        """Run a command to its end.

        Args:
            arguments: The command's arguments.
            makes: Name of the one file or folder it is meant to make in the working directory.
            env: Further variables.
            out: Where standard output goes; by default into the result.
        """
        with self.running(*arguments, makes=makes, env=env, out=out) as running:
            return running.finish()

    @contextlib.contextmanager
    def running(
        self, *arguments: str, makes: str = "", env: Mapping[str, str] | None = None, out: int = subprocess.PIPE
    ) -> Iterator[Running]:
        """Start a command; on the way out, check that it has left nothing behind."""
        before = {path.name for path in self.cwd.iterdir()}
        with _no_orphans():
            process = subprocess.Popen(
                [str(PROGRAM), *arguments],
                cwd=self.cwd,
                env=self.environment(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
            try:
                yield Running(process)
            finally:
                process.kill()
                process.communicate()
        assert [path.name for path in self.tmp.iterdir()] == [], "temporary files left behind"
        made = {path.name for path in self.cwd.iterdir()} - before
        assert made <= {makes}, f"left in the working directory: {made}"

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables a command is given."""
        shown = {"NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"}
        kept = {name: value for name, value in os.environ.items() if name not in shown}
        return {**kept, "TMPDIR": str(self.tmp), "BENCHMAX_CACHE_DIR": str(self.cache), **(more or {})}


@contextlib.contextmanager
def _no_orphans() -> Iterator[None]:
    """Fail if a process that was started below is still there a while after its parent: it comes to us then."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = children()
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
        deadline = time.monotonic() + GONE_S
        while left := _living(children() - before):
            if time.monotonic() > deadline:
                names = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ") for pid in left]
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                raise AssertionError(f"processes left behind: {names}")
            time.sleep(0.01)
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _living(pids: set[int]) -> set[int]:
    """Collect those that have ended and return the others."""
    return {pid for pid in pids if os.waitpid(pid, os.WNOHANG) == (0, 0)}
