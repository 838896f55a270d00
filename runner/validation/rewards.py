"""Whether rewards say anything: they are there, and not all the same. Zero is a reward like any other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from benchmax.bundle.findings.finding import Finding
from runner.text import one_line
from runner.validation.codes import KINDS
from runner.validation.passes import Ended

SHOWN: Final = 5
"""Reward components that are named."""


def look_at_rewards(results: Sequence[Ended]) -> Iterator[Finding]:
    """Give what is doubtful about the rewards of rollouts that ended well."""
    records = [record for result in results for record in result.records.values() if record.outcome.error is None]
    rewards = [dict(record.outcome.rewards) for record in records]
    if not rewards:
        return
    what = records[0].rollout_id
    if not any(rewards):
        yield _warning(
            "no-rewards",
            what,
            f"all {len(rewards)} rollouts ended well without any reward",
            "Return rewards from compute_reward or compute_group_rewards.",
        )
    elif len(rewards) > 1 and all(one == rewards[0] for one in rewards):
        shown = ", ".join(f"{one_line(name, 40)} {value:g}" for name, value in [*rewards[0].items()][:SHOWN])
        yield _warning(
            "constant-reward",
            what,
            f"all {len(rewards)} rollouts have the same rewards ({shown}), which teach nothing",
            "Try a model that answers in more ways (--model mock:SCRIPT, local, or --base-url); if they stay the same, "
            "look at what compute_reward compares.",
        )


def _warning(code: str, what: str, message: str, fix: str) -> Finding:
    return Finding(severity=KINDS[code].severity, code=code, what=what, message=message, fix=fix)
