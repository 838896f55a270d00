"""Everything one build shares: where it works, what with, until when, and how its programs are run."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runner.errors import BuildError, InstallTimeoutError
from runner.limits import Limits
from runner.provision.cache import Cache
from runner.provision.command import DeadlineError, Deadlines, Finished, run
from runner.provision.confinement import Confinement, certificates
from runner.provision.environment import installer_environment
from runner.provision.index import Indexes
from runner.provision.interpreter import Interpreter
from runner.provision.options import ProvisionOptions
from runner.provision.place import Place
from runner.provision.progress import Phase, Progress
from runner.provision.proxy import PROXY, Proxy
from runner.provision.relay import Relay
from runner.sandbox.view import interpreter as parts_of_interpreter

UNTOLD: Final = ("+ ", "Using Python", "Using CPython", "WARNING: Using pylock.toml", "error: ", "cause: ", "ERROR: ")
"""How lines of installers begin that are no news."""

BUILD_FOLDERS: Final = ("given", "staging", "private/home", "private/tmp", "private/downloads", "private/sources")
SHOWN_BUILD: Final = "<build>"
"""What the folder of a build is called in what programs printed; its path tells nobody anything."""


@dataclass(slots=True, kw_only=True)
class Workspace:
    """One build's surroundings.

    Args:
        interpreter: What the venv is made from.
        cache: Where it is made.
        target: Where the venv goes; only the build that has this workspace writes there.
        scratch: Private folder that is removed when the build ends.
        options: How packages are looked for and chosen.
        index: Where packages come from.
        confinement: How programs are confined.
        sources: Files and folders of this machine that packages come from.
        relay: Who asks the indexes for the installers, where these may not do it themselves.
        proxy: The only way out of the sandbox's network, where it has one of its own.
        limits: Deadlines; the clock starts when this object is made.
        progress: Who hears about steps.
    """

    interpreter: Interpreter
    cache: Cache
    target: Path
    scratch: Path
    options: ProvisionOptions
    index: Indexes
    limits: Limits
    progress: Progress
    confinement: Confinement
    sources: tuple[Path, ...] = ()
    relay: Relay | None = None
    proxy: Proxy | None = None
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.limits.install_s

    def place(self, downloads: Path, programs: Sequence[Path]) -> Place:
        """Return where programs work that run no code of packages: they may write the installer's cache and the venv.

        Args:
            downloads: The installer's cache.
            programs: What is executed beside the interpreter.

        Raises:
            CacheError: the cache cannot be written.
            SandboxUnavailableError: the interpreter lies in a folder that holds more than it.
        """
        scratch = self.scratch.resolve()
        with self.cache.boundary():
            downloads.mkdir(parents=True, exist_ok=True)
            policy = self.confinement.of_installer(
                scratch=scratch,
                readable=[*self._readable(programs), self.cache.built_dir],
                writable=[downloads, self.target],
            )
        return Place(work=scratch, given=scratch, downloads=downloads, policy=policy)

    def build_place(self, programs: Sequence[Path]) -> Place:
        """Make a place of its own for builds, in which code of packages may run.

        Args:
            programs: What is executed beside the interpreter.

        Raises:
            CacheError: the cache cannot be written.
            SandboxUnavailableError: the interpreter lies in a folder that holds more than it.
        """
        with self.cache.boundary():
            folder = Path(tempfile.mkdtemp(prefix="build-", dir=self.scratch.resolve()))
            for name in BUILD_FOLDERS:
                (folder / name).mkdir(parents=True)
            # its user has to get through, and to read what it is given
            folder.chmod(0o711)
            (folder / "given").chmod(0o755)
            # else git refuses a repository of this machine that belongs to the caller
            settings = folder / "private" / "home" / ".gitconfig"
            settings.write_text("[safe]\n\tdirectory = *\n", encoding="ascii")
            settings.chmod(0o644)
            policy = self.confinement.of_build(
                private=folder / "private", readable=[folder / "given", *self._readable(programs)]
            )
        private = folder / "private"
        return Place(work=private, given=folder / "given", downloads=private / "downloads", policy=policy, builds=True)

    def _readable(self, programs: Sequence[Path]) -> list[Path | str]:
        own = [self.cache.wheels_dir]
        parts = [] if self.confinement.policy.level == "off" else parts_of_interpreter(str(self.interpreter.path))
        return [*parts, *programs, *own, *self.sources, *certificates()]

    async def run(
        self,
        argv: Sequence[str],
        *,
        phase: Phase,
        place: Place,
        env: Mapping[str, str] | None = None,
        quiet: bool = False,
    ) -> Finished:
        """Run a program of the build to its end.

        Args:
            argv: The command; the first word is an absolute path.
            phase: What it is part of; its lines on standard error become events of this phase.
            place: Where it works.
            env: Variables in addition to the ones every program gets.
            quiet: Its lines are no events: it only finds something out.

        Returns:
            How it ended; credentials of the index are removed from what it printed.

        Raises:
            BuildError: its tree has met a limit.
            InstallTimeoutError: a deadline passed; nothing of the program's tree is left.
            CacheError: the scratch folder cannot be written.
            SandboxUnavailableError: the sandbox could not be made.
        """
        with self.cache.boundary():
            proxies = None if self.proxy is None else self.proxy.environment()
            environment = installer_environment(place.work, env, proxies)
        try:
            finished = await run(
                argv,
                env=environment,
                cwd=place.work,
                deadlines=Deadlines(at=self._until, silence_s=self.limits.install_silence_s),
                policy=place.policy,
                routes={} if self.proxy is None else {PROXY: self.proxy},
                on_line=None if quiet else lambda line: self._tell(phase, line),
                on_printed_line=None if quiet else lambda line: self._tell(phase, line, steps_only=True),
                on_written=None if quiet else lambda count: self.progress.written(phase, count),
            )
        except DeadlineError as error:
            raise self._timed_out(phase, error) from None
        if finished.code != 0 and finished.reached:
            met = " and ".join(finished.reached)
            raise BuildError(
                f"build failed: what was built reached the limit {met}.",
                hint="Raise that limit if the bundle is trusted.",
            )

        def shown(text: str) -> str:
            text = self.index.redact(text)
            return text.replace(str(place.work), SHOWN_BUILD) if place.builds else text

        return replace(finished, stdout=shown(finished.stdout), stderr=shown(finished.stderr))

    def _tell(self, phase: Phase, line: str, *, steps_only: bool = False) -> None:
        line = line.strip()
        # uv's list of what it put in is in the finished venv; an error is raised, or was that nothing is built here
        if not line.startswith(UNTOLD):
            self.progress.line(phase, self.index.redact(line), steps_only=steps_only)

    def _timed_out(self, phase: Phase, error: DeadlineError) -> InstallTimeoutError:
        last = self.index.redact(error.last_line)
        said = f"its last line was {last!r}" if last else "it had printed nothing"
        if error.silent:
            how = f"made no progress for {error.after_s:.3g} s"
            hint = "The index may be unreachable; otherwise raise the limit install_silence_s."
        else:
            how = f"was not done after {self.limits.install_s:.3g} s"
            hint = "Raise the limit install_s if the packages are large."
        return InstallTimeoutError(
            f"the installer {how} in phase {phase!r} with the index at {self.index.host}; {said}.", hint=hint
        )
