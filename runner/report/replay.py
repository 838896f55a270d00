"""What a replay found that its record has otherwise: a part of its report."""

from __future__ import annotations

import msgspec


class ReplayFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a replay went another way than its record.

    Args:
        code: `replay_mismatch` for a model call that was asked otherwise, `replay_missing` for one that was not
            recorded, `replay_outcome` for an outcome that is another one.
        rollout_id: The rollout.
        message: One sentence for a person.
        binding: Name of the binding of a model call; `None` for the rollout's own model, or no call at all.
        number: Place of the call in its session, from 0; `None` when it is no call.
        path: Where the request or the outcome differs, such as `$.messages[2].content`.
        recorded: What the record has there, as JSON, bounded.
        now: What the replay has.
    """

    code: str
    rollout_id: str
    message: str
    binding: str | None = None
    number: int | None = None
    path: str = ""
    recorded: str = ""
    now: str = ""


class ReplayFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a replay compares with its record.

    Args:
        path: The record.
        outcomes: Rollouts that have an outcome in both.
        equal: Those of them whose outcome is the same: reason, error, rewards and transcript.
        unused_calls: Recorded model calls that nothing asked for.
        findings: What is otherwise, the first ones.
        omitted: Findings beyond these.
    """

    path: str
    outcomes: int
    equal: int
    unused_calls: int
    findings: list[ReplayFinding] = []
    omitted: int = 0
