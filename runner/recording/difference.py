"""How two runs differ: what they were of, what they ran with, how their rollouts ended, and what models were asked.

Comes in: two reports, each with the record that it lies in, if it does. Goes out: a bounded list of differences, and
how many there are of each kind. What differs between any two runs is not looked at: times, places, process numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from runner.errors import UsageError
from runner.recording.comparing import ABSENT, first_difference
from runner.recording.facts import transcripts
from runner.recording.folder import RecordFolder
from runner.recording.matching import Request, last_attempts, listed_calls
from runner.recording.traffic import RecordedCall
from runner.report.value import OutcomeFacts, Report

FORMAT: Final = 1

Kind = Literal["settings", "packages", "outcomes", "rewards", "transcripts", "calls"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

MAX_LISTED: Final = 100
"""Differences of one kind that are listed; the others are counted."""


class RunDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference.

    Args:
        kind: What differs.
        where: The setting, package or rollout.
        path: The place in it where it begins, such as `[3].content`; empty for a single value.
        first: The value of the first run as JSON, bounded; `nothing` where it has none.
        second: The same of the second.
    """

    kind: Kind
    where: str
    path: str
    first: str
    second: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How two runs compare.

    Args:
        format: Number of this form.
        equal: Whether there is no difference.
        first, second: What was compared.
        rollouts: Rollouts with an outcome in both.
        calls: Model calls that were compared; `None` where one of the two is no record.
        counts: Differences of each kind.
        differences: The first ones of each kind.
    """

    format: int
    equal: bool
    first: str
    second: str
    rollouts: int
    calls: int | None
    counts: dict[Kind, int]
    differences: list[RunDifference]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two runs.

    Args:
        path: Where it was read.
        report: What it found.
        record: The record that it lies in.
    """

    path: Path
    report: Report
    record: RecordFolder | None = None

    @classmethod
    def read(cls, path: Path) -> Side:
        """Read a record, or a report.

        Raises:
            UsageError: it is neither, or the record has no report yet.
        """
        if path.is_dir():
            folder = RecordFolder.open(path, claim=False)
            folder.read_facts()
            report = folder.read_report()
            if report is None:
                raise UsageError(
                    f"the run recorded in {path} was not finished, and there is no report of it.",
                    hint=f"Finish it first: benchmax run --resume {path}.",
                )
            return cls(path, report, folder)
        try:
            return cls(path, Report.from_json(path.read_bytes()))
        except FileNotFoundError:
            raise UsageError(f"no run at {path}: no such file or folder.", hint="Give a record or a report.") from None
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}.") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(
                f"{path} is no report: {error}.", hint="Give a record, or what `benchmax run --json-out` wrote."
            ) from error


def compare(first: Side, second: Side) -> Comparison:
    """Compare two runs.

    Raises:
        UsageError: what was recorded of one cannot be read.
    """
    one, other = _by_id(first.report), _by_id(second.report)
    found = [*_settings(first, second), *_packages(first, second), *_outcomes(one, other)]
    calls: int | None = None
    if first.record is not None and second.record is not None:
        calls, differing = _calls(first.record, second.record)
        found += differing
    listed: list[RunDifference] = []
    for kind in KINDS:
        listed += [difference for difference in found if difference.kind == kind][:MAX_LISTED]
    return Comparison(
        format=FORMAT,
        equal=not found,
        first=str(first.path),
        second=str(second.path),
        rollouts=len(one.keys() & other.keys()),
        calls=calls,
        counts={kind: sum(difference.kind == kind for difference in found) for kind in KINDS},
        differences=listed,
    )


def _settings(first: Side, second: Side) -> Iterator[RunDifference]:
    one, other = _told(first), _told(second)
    known = first.record is not None and second.record is not None
    for name in dict.fromkeys([*one, *other]):
        if (name in one and name in other) or known:
            yield from _difference("settings", name, one.get(name, ABSENT), other.get(name, ABSENT))


def _told(side: Side) -> dict[str, object]:
    """What a run was told, and what it ran with; all of it is known of a record only."""
    report = side.report
    told: dict[str, object] = {
        "artifact": report.bundle.digest,
        "environment": report.bundle.environment,
        "python": report.bundle.python_version,
        "sandbox": report.sandbox.level,
        "network": report.sandbox.network,
        "hash seed": report.sandbox.hash_seed,
        "model": report.model.name,
        # benchmax's own servers are at another port each time
        "base URL": report.model.base_url if report.model.kind == "endpoint" else report.model.kind,
        "split": report.dataset.split,
        "examples": report.dataset.examples,
        "rollouts": report.expected,
        "interrupted": report.interrupted,
    }
    if side.record is not None:
        facts = side.record.read_facts()
        told |= {f"option {name}": value for name, value in msgspec.to_builtins(facts.settings).items()}
        told |= {f"data file {name}": found.sha256 for name, found in facts.data.items()}
    return told


def _packages(first: Side, second: Side) -> Iterator[RunDifference]:
    one, other = first.report.venv.packages, second.report.venv.packages
    for name in sorted(one.keys() | other):
        yield from _difference("packages", name, one.get(name, ABSENT), other.get(name, ABSENT))


def _by_id(report: Report) -> dict[str, OutcomeFacts]:
    return {outcome.rollout_id: outcome for outcome in report.outcomes}


def _outcomes(one: Mapping[str, OutcomeFacts], other: Mapping[str, OutcomeFacts]) -> Iterator[RunDifference]:
    # in the order of the first run, then what only the second has
    for name in [*one, *(name for name in other if name not in one)]:
        mine, theirs = one.get(name), other.get(name)
        if mine is None or theirs is None:
            reasons = [ABSENT if outcome is None else outcome.termination_reason for outcome in (mine, theirs)]
            yield from _difference("outcomes", name, *reasons)
            continue
        yield from _difference("outcomes", name, _ending(mine), _ending(theirs))
        yield from _difference("rewards", name, mine.rewards, theirs.rewards)
        yield from _difference("transcripts", name, *transcripts(mine, theirs))


def _ending(outcome: OutcomeFacts) -> dict[str, object]:
    return {"reason": outcome.termination_reason, "error": outcome.error, "origin": outcome.origin}


def _calls(first: RecordFolder, second: RecordFolder) -> tuple[int, list[RunDifference]]:
    """Compare model calls: how many each rollout made, what it asked, and with what status it was answered."""
    one, other = (listed_calls(side.calls, last_attempts(side)) for side in (first, second))
    compared = 0
    found: list[RunDifference] = []
    for key in [*one, *(key for key in other if key not in one)]:
        where = key.rollout_id if key.binding is None else f"{key.rollout_id}, binding {key.binding}"
        mine, theirs = one.get(key, []), other.get(key, [])
        if len(mine) != len(theirs):
            found += _difference("calls", f"{where}: number of calls", len(mine), len(theirs))
            continue
        for ours, their in zip(mine, theirs, strict=True):
            compared += 1
            asked = [_asked(side.calls.at(listed.place)) for side, listed in ((first, ours), (second, their))]
            if difference := [*_difference("calls", f"{where}: call {ours.number}", *asked)]:
                # what comes after the first one mostly follows from it
                found += difference
                break
    return compared, found


def _asked(call: RecordedCall) -> dict[str, object]:
    request = Request.recorded(call)
    return {"address": request.address, "request": request.document, "status": call.status}


def _difference(kind: Kind, where: str, one: object, other: object) -> Iterator[RunDifference]:
    difference = first_difference(one, other)
    if difference is not None:
        yield RunDifference(
            kind=kind,
            where=where,
            path=difference.path.removeprefix("$").removeprefix("."),
            first=difference.first,
            second=difference.second,
        )
