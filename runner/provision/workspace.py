"""Everything one build shares: where it works, what with, until when, and how its programs are run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import InstallTimeoutError
from runner.limits import Limits
from runner.provision.cache import Cache
from runner.provision.command import DeadlineError, Deadlines, Finished, run
from runner.provision.environment import installer_environment
from runner.provision.index import Indexes
from runner.provision.interpreter import Interpreter
from runner.provision.options import ProvisionOptions
from runner.provision.progress import Phase, Progress
from runner.provision.relay import Relay


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
        relay: Who asks the indexes for the installers, where these may not do it themselves.
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
    relay: Relay | None = None
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.limits.install_s

    async def run(
        self, argv: Sequence[str], *, phase: Phase, env: Mapping[str, str] | None = None, quiet: bool = False
    ) -> Finished:
        """Run a program of the build to its end.

        Args:
            argv: The command; the first word is an absolute path.
            phase: What it is part of; its lines on standard error become events of this phase.
            env: Variables in addition to the ones every program gets.
            quiet: Its lines are no events: it only finds something out.

        Returns:
            How it ended; credentials of the index are removed from what it printed.

        Raises:
            InstallTimeoutError: a deadline passed; nothing of the program's tree is left.
            CacheError: the scratch folder cannot be written.
        """
        with self.cache.boundary():
            environment = installer_environment(self.scratch, env)
        try:
            finished = await run(
                argv,
                env=environment,
                cwd=self.scratch,
                deadlines=Deadlines(at=self._until, silence_s=self.limits.install_silence_s),
                on_line=None if quiet else lambda line: self._tell(phase, line),
                on_printed_line=None if quiet else lambda line: self._tell(phase, line, steps_only=True),
                on_written=None if quiet else lambda count: self.progress.written(phase, count),
            )
        except DeadlineError as error:
            raise self._timed_out(phase, error) from None
        redact = self.index.redact
        return Finished(finished.code, redact(finished.stdout), redact(finished.stderr), finished.how)

    def _tell(self, phase: Phase, line: str, *, steps_only: bool = False) -> None:
        line = line.strip()
        # uv's list of what it put in is in the finished venv
        if not line.startswith(("+ ", "Using Python", "WARNING: Using pylock.toml")):
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
