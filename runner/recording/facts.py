"""What `record.json` and the lines of `outcomes.jsonl` hold.

Both carry what a later release needs to read them: an integer `format`, and fields that are only ever added, with
defaults. Readers ignore fields they do not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from runner.recording.data import FileFacts
from runner.recording.settings import Settings
from runner.report.value import OutcomeFacts

FORMAT: Final = 1


NO_CONVERSATION: Final = frozenset({"overlapping_generations", "rewritten_history"})
"""Findings in the model requests of a rollout that is not one conversation: what was said last is a matter of luck."""


class ExampleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which examples there were: how many, and a digest of their ids in order."""

    count: int
    sha256: str

    @classmethod
    def of(cls, ids: Sequence[str]) -> ExampleFacts:
        """Sum up ids."""
        digest = hashlib.sha256()
        for example_id in ids:
            data = example_id.encode()
            digest.update(b"%d:%b" % (len(data), data))
        return cls(count=len(ids), sha256=digest.hexdigest())


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at the run, as far as it came: what it ran with, and when it began."""

    number: int
    began: str
    benchmax: str
    hash_seed: str
    sandbox: str = ""
    interpreter: str = ""
    python_version: str = ""
    packages: dict[str, str] = {}
    model: str = ""
    base_url: str = ""


class RecordFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is of.

    Args:
        format: Number of this form.
        digest: The artifact's.
        settings: What the run was told to do.
        data_path: Where its data was.
        data: What each data file was, by its path below that.
        attempts: The first one, and one for each time the run went on.
        examples: Which examples the dataset had; `None` before there was one.
    """

    format: int
    digest: str
    settings: Settings
    data_path: str
    data: dict[str, FileFacts]
    attempts: list[AttemptFacts] = []
    examples: ExampleFacts | None = None


def transcripts(first: OutcomeFacts, second: OutcomeFacts) -> tuple[object, object]:
    """Return what of two rollouts' transcripts is to be the same: all, or where one is no conversation nothing."""
    if any(finding.code in NO_CONVERSATION for outcome in (first, second) for finding in outcome.findings):
        return None, None
    return first.transcript, second.transcript


class OutcomeLine(msgspec.Struct, frozen=True, kw_only=True):
    """How a rollout ended in one attempt.

    Args:
        attempt: Number of the attempt.
        infrastructure: Whether it failed for reasons that say nothing about the environment; it is run again then.
        outcome: The outcome, and what is known of it, as reports have it.
    """

    attempt: int
    infrastructure: bool
    outcome: OutcomeFacts
