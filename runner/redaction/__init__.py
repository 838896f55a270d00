"""Takes secrets out of text: what of a header is one, how it may be spelled, and where it stands."""

from runner.redaction.redactor import MARK, Redactor
from runner.redaction.secret import MIN_CHARS

__all__ = ["MARK", "MIN_CHARS", "Redactor"]
