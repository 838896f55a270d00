"""The course of a run that is recorded, from its beginning or from where an earlier attempt was ended."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import msgspec

from runner.artifact import Artifact
from runner.environ import HASH_SEED
from runner.errors import RunnerError, UsageError
from runner.gateway.exchange import Exchange
from runner.isolated import IsolatedEnvironment
from runner.models.command import Announcement
from runner.plan import RunPlan
from runner.provision import Cache, Lock, ProvisionEvent, lock_beside, make_lock
from runner.provision.document import write_lock_text
from runner.record import OnEvent, PhaseEvent, RolloutRecord
from runner.recording.course import Course
from runner.recording.data import data_facts, still
from runner.recording.facts import FORMAT, AttemptFacts, ExampleFacts, OutcomeLine, RecordFacts
from runner.recording.folder import RecordFolder
from runner.recording.settings import Settings
from runner.recording.traffic import RecordedCall, Recorder
from runner.report.value import OutcomeFacts, Report


class Recording(Course):
    """Keeps what a run is given, what its models answer and how its rollouts end.

    Make one with `new` or `resumed`.

    Args:
        folder: Where; claimed.
        facts: What is known of the run.
        artifact: What is run.
        earlier: The last outcome of each rollout, from earlier attempts.
        held_bytes: What these take in this process, about.
        began: When the data was looked at, in seconds since 1970.
    """

    def __init__(
        self,
        folder: RecordFolder,
        facts: RecordFacts,
        artifact: Artifact,
        *,
        earlier: Mapping[str, OutcomeLine],
        held_bytes: int,
        began: float,
    ) -> None:
        number = 1 + max((attempt.number for attempt in facts.attempts), default=0)
        attempt = AttemptFacts(
            number=number,
            began=datetime.now(UTC).isoformat(timespec="seconds"),
            benchmax=version("benchmax"),
            hash_seed=HASH_SEED,
        )
        self._folder = folder
        self._facts = msgspec.structs.replace(facts, attempts=[*facts.attempts, attempt])
        self._artifact = artifact
        self._earlier = earlier
        self._held_bytes = held_bytes
        self._number = number
        self._clean: Callable[[str], str] = lambda text: text
        self._outcomes = folder.write_outcomes()
        self._calls = folder.write_calls()
        self._kept = bool(earlier)
        self._over = False
        self._began = began
        self._recorder = Recorder(self._keep_call, attempt=number, clean=lambda text: self._clean(text))

    @classmethod
    def new(cls, path: Path, artifact: Artifact, plan: RunPlan, *, leave_out: Iterable[Path] = ()) -> Recording:
        """Begin a record.

        Args:
            path: A folder that is new or empty.
            artifact: What is run.
            plan: What to do with it.
            leave_out: Files that are no data even if they lie beside it, since the run will write them.

        Raises:
            UsageError: there is nothing to record, the folder cannot be taken, or the data cannot be summed up.
            RunnerError: something cannot be written, or the artifact's lock cannot be read.
        """
        if plan.network == "none":
            raise UsageError(
                "a run with the network mode none has no model calls to record.", hint="Use model-only, or open."
            )
        options = lock_beside(plan.provisioning, artifact.path)
        lock = None if options.lock is None else Lock.read(options.lock)
        began = time.time()
        facts = RecordFacts(
            format=FORMAT,
            digest=artifact.digest,
            settings=Settings.of(plan),
            data_path=str(plan.data.absolute()),
            data=data_facts(plan.data, limits=plan.limits, leave_out=leave_out),
        )
        folder = RecordFolder.create(path)
        try:
            folder.write_artifact(artifact)
            if lock is not None:
                folder.write_lock(_portable(lock))
            recording = cls(folder, facts, artifact, earlier={}, held_bytes=0, began=began)
            folder.write_facts(recording._facts)
        except BaseException:
            folder.discard()
            folder.close()
            raise
        return recording

    @classmethod
    def resumed(cls, folder: RecordFolder, facts: RecordFacts, artifact: Artifact, plan: RunPlan) -> Recording:
        """Go on with a record.

        Args:
            folder: The record; claimed.
            facts: What it is of.
            artifact: Its artifact.
            plan: Its plan, with credentials.

        Raises:
            UsageError: its outcomes cannot be read.
            RunnerError: its journals cannot be opened.
        """
        earlier, held = last_outcomes(folder, report_bytes=plan.limits.report_bytes)
        return cls(folder, facts, artifact, earlier=earlier, held_bytes=held, began=time.time())

    @property
    def exchange(self) -> Exchange:
        """What keeps the model calls."""
        return self._recorder

    @property
    def failure(self) -> RunnerError | None:
        """Why outcomes or calls cannot be kept any more."""
        return self._outcomes.failure or self._calls.failure

    @property
    def held_bytes(self) -> int:
        """What the outcomes of earlier attempts take, about."""
        return self._held_bytes

    @property
    def apart(self) -> bool:
        """Rollouts that have ended are not to be lost with one that has not."""
        return True

    def use(self, clean: Callable[[str], str]) -> None:
        """Take what removes secrets."""
        self._clean = clean

    async def prepare(self, plan: RunPlan, cache: Cache, on_event: OnEvent | None) -> RunPlan:
        """Make the lock, or take the one that there is: from it packages are installed, now and when it is replayed.

        Raises:
            RunnerError: there is no lock to be had, as for `make_lock`.
        """
        began = time.monotonic()

        def tell(event: ProvisionEvent) -> None:
            if on_event is not None:
                elapsed_s = time.monotonic() - began
                on_event(PhaseEvent(phase=event.phase, message=event.message, elapsed_s=elapsed_s))

        if not self._folder.lock.exists():
            options = plan.provisioning
            lock, _ = await make_lock(
                self._artifact.bundle.metadata,
                python=plan.python,
                cache=cache,
                options=options if options.sandbox != "auto" else replace(options, sandbox=plan.sandbox),
                limits=plan.limits,
                on_event=tell,
            )
            self._folder.write_lock(lock.text)
        return replace(plan, provisioning=replace(plan.provisioning, lock=self._folder.lock))

    def finished(self) -> Report | None:
        """Return the report where nothing is left to do, and let the record be; `None` where something is."""
        report = self._folder.read_report()
        if report is None or report.interrupted or report.missing or report.close_error:
            return None
        if any(line.infrastructure for line in self._earlier.values()):
            return None
        self._let_go()
        return report

    def started(self, env: IsolatedEnvironment, model: Announcement) -> None:
        """Note what this attempt runs with; what an earlier one found is no result any more."""
        self._folder.remove_report()
        self._recorder.base_url = model.base_url
        venv = env.venv
        attempt = msgspec.structs.replace(
            self._facts.attempts[-1],
            sandbox=env.policy.level,
            interpreter=str(venv.base_python),
            python_version=venv.python_version,
            packages=dict(venv.packages),
            model=model.model,
            base_url=model.base_url,
        )
        self._note(attempts=[*self._facts.attempts[:-1], attempt])

    def dataset(self, example_ids: Sequence[str]) -> None:
        """Note which examples there are, or check that they are those of before.

        Raises:
            UsageError: they are not.
        """
        found = ExampleFacts.of(example_ids)
        if self._facts.examples is None:
            data = still(Path(self._facts.data_path), self._facts.data, since=self._began)
            self._note(examples=found, data=data)
        else:
            check_examples(found, self._facts.examples)

    def standing(self, rollout_ids: Sequence[str], *, scores_groups: bool) -> Mapping[str, OutcomeFacts]:
        """Return the outcomes of earlier attempts that stand.

        A rollout that failed for reasons of infrastructure has none. Of a group whose rollouts are scored together,
        all stand or none does.
        """
        found = {name: line for name in rollout_ids if (line := self._earlier.get(name)) and not line.infrastructure}
        whole = len(found) == len(rollout_ids) and len({line.attempt for line in found.values()}) == 1
        return {name: line.outcome for name, line in found.items()} if whole or not scores_groups else {}

    def keep(self, record: RolloutRecord, facts: OutcomeFacts) -> None:
        """Write an outcome down, after the calls that it came of."""
        self._recorder.settle(record.rollout_id)
        self._outcomes.append(OutcomeLine(attempt=self._number, infrastructure=record.infrastructure, outcome=facts))
        self._kept = True

    def ended(self, report: Report | None) -> None:
        """Write the report; where nothing came of the run, leave no record of it."""
        if self._over:
            return
        try:
            if not self._kept and (report is None or report.interrupted):
                self._folder.discard()
            elif report is not None:
                self._folder.write_report(report)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._over = True
        self._outcomes.close()
        self._calls.close()
        self._folder.close()

    def _keep_call(self, call: RecordedCall) -> None:
        self._calls.append(call)
        self._kept = True

    def _note(self, **changes: object) -> None:
        self._facts = msgspec.structs.replace(self._facts, **changes)
        self._folder.write_facts(self._facts)


def last_outcomes(folder: RecordFolder, *, report_bytes: int) -> tuple[dict[str, OutcomeLine], int]:
    """Read the last outcome of each rollout.

    Args:
        folder: The record.
        report_bytes: What is held of transcripts and logs at most; later ones are left out, and counted.

    Returns:
        Outcomes by rollout, and the bytes that they take, about.

    Raises:
        UsageError: they cannot be read.
    """
    found: dict[str, OutcomeLine] = {}
    held: dict[str, int] = {}
    total = 0
    for place, line in folder.outcomes.placed():
        name = line.outcome.rollout_id
        total -= held.pop(name, 0)
        if total + place.length <= report_bytes:
            held[name] = place.length
            total += place.length
        else:
            line = msgspec.structs.replace(line, outcome=line.outcome.without_output())
        found[name] = line
    return found, total


def check_examples(now: ExampleFacts, recorded: ExampleFacts) -> None:
    """Check that a dataset has the examples that it had when the run was recorded.

    Raises:
        UsageError: it has others.
    """
    if now != recorded:
        how = f"{now.count} examples, and {recorded.count}" if now.count != recorded.count else "other examples than"
        raise UsageError(
            f"the dataset has {how} were recorded.",
            hint="Give --data the folder as it was then; files that were added may be the reason, too.",
        )


def _portable(lock: Lock) -> str:
    """Return the text of a lock that can be read in any folder."""
    # paths in it are relative to the folder that it was read from
    as_written = tomllib.loads(lock.text).get("packages", [])
    return lock.text if as_written == list(lock.packages) else write_lock_text(lock.data)
