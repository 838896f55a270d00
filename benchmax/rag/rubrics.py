"""By what a judge decides about an answer. Private; `benchmax.rag.env` has both by name."""

from __future__ import annotations

from typing import Final

from benchmax.rewards.rubric import Rubric

__all__ = ["CONCISENESS_RUBRIC", "CORRECTNESS_RUBRIC"]

CORRECTNESS_RUBRIC: Final = Rubric(
    title="Answer correctness",
    description=(
        "The response answers the question that was asked, states every fact that the reference answer gives in reply "
        "to it, and contradicts none of them. Wording, order, further true detail and [Source: ...] marks do not "
        "matter. Without a reference answer, judge by what is generally known."
    ),
    score_map={
        0: "It gives no answer, a wrong one, or one that lacks or contradicts a fact of the reference answer.",
        1: "It answers the question fully and agrees with the reference answer.",
    },
)
"""Whether an answer is right; scored 0 or 1."""

CONCISENESS_RUBRIC: Final = Rubric(
    title="Answer conciseness",
    description=(
        "The response gives what was asked for and stops: no repetition, no account of how it was found, no detail "
        "that the question did not ask for. [Source: ...] marks do not count as length."
    ),
)
"""Whether an answer is short; not part of the default reward."""
