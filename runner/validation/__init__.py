"""Judging a bundle: whether it does what an environment has to, and what is wrong with it where it does not.

Comes in: an artifact that somebody uploaded. Goes out: a `Verdict`, whatever the bundle does. Raises only for the
caller's or the host's fault.
"""

from runner.validation.plan import ValidationPlan
from runner.validation.validating import Validation, validate
from runner.validation.verdict import CheckFacts, Verdict

__all__ = ["CheckFacts", "Validation", "ValidationPlan", "Verdict", "validate"]
