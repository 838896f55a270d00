"""What an examination finds, as values that can be shown, written down and sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from benchmax.bundle.digest import Bundle, bundle_digest

Severity: TypeAlias = Literal["error", "warning"]

CODES: Final = frozenset(
    {
        "author-path", "by-name-only", "delayed-import", "does-not-load", "environment-captured", "external-source",
        "logger-handlers", "module-file", "not-all-examined", "not-verified", "oversized", "process-state", "refused",
        "secret-captured", "shared-state", "uncaptured-module", "undeclared-dependency", "unpicklable",
        "unresolved-annotation",
    }
)  # fmt: skip
"""Every kind of finding there is; `does-not-load` and `not-verified` come from trying the bundle, not from looking."""

FACTS_FORMAT: Final = 1
MAX_FINDINGS: Final = 200
MAX_LISTED: Final = 200
MAX_TEXT: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or may be.

    Args:
        severity: `error`: it fails where the bundle is run; `warning`: it may.
        code: Which kind it is; stable, so match on this and not on the text.
        what: The path to it, such as `Env.step → globals['client']`.
        message: What is wrong with it.
        fix: What to change.
        file: The file with the line to change; empty where there is none.
        line: That line, from 1; 0 when unknown.
    """

    severity: Severity
    code: str
    what: str
    message: str
    fix: str
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """The place as `file:line`, empty where there is none."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def __str__(self) -> str:
        return f"{self.code}: {self.what}{f' ({self.where})' if self.where else ''}: {self.message}"

    def as_json(self) -> dict[str, object]:
        """Return it as JSON values, each text bounded."""
        return {
            "severity": self.severity,
            "code": self.code,
            "what": _bounded(self.what),
            "message": _bounded(self.message),
            "fix": _bounded(self.fix),
            "file": _bounded(self.file),
            "line": self.line,
        }


@dataclass(frozen=True, slots=True)
class Contributor:
    """What travels by value.

    Args:
        name: A module, or a constructor argument as `constructor_args['size']`.
        size: Its share of the pickle in bytes, near enough.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class ByReference:
    """A top-level package that has to be there where the bundle is loaded.

    Args:
        module: Its name.
        source: Where it comes from: `python`, `benchmax`, a distribution's name, or empty when that is unknown.
    """

    module: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What an examination of an environment came to.

    Args:
        environment: The class, as `module.Name`.
        findings: Everything found, errors first.
        by_value: What the bundle carries itself, largest first.
        by_reference: What it needs to find where it is loaded, sorted.
        cloudpickle_version: Version that pickled it.
        bundle: The bundle, `None` where none could be made. It is there even if there are errors: whether to use it
            is for the caller.
    """

    environment: str
    findings: tuple[Finding, ...]
    by_value: tuple[Contributor, ...]
    by_reference: tuple[ByReference, ...]
    cloudpickle_version: str
    bundle: Bundle | None = field(repr=False)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(one for one in self.findings if one.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(one for one in self.findings if one.severity == "warning")

    def as_json(self) -> dict[str, object]:
        """Return it without the bundle, as JSON values; lists and texts are bounded."""
        return {
            "environment": self.environment,
            "findings": [one.as_json() for one in self.findings[:MAX_FINDINGS]],
            "findings_left_out": max(0, len(self.findings) - MAX_FINDINGS),
            **self._contents(),
        }

    def facts(self) -> dict[str, object]:
        """Return what an artifact's `env-facts.json` says: nothing of it names a file of this machine.

        Raises:
            ValueError: there is no bundle.
        """
        if self.bundle is None:
            raise ValueError("There is no bundle to state facts of: the examination found errors.")
        return {
            "format": FACTS_FORMAT,
            "digest": bundle_digest(self.bundle),
            "environment": self.environment,
            **self._contents(),
        }

    def _contents(self) -> dict[str, object]:
        return {
            "cloudpickle_version": self.cloudpickle_version,
            "pickle_bytes": 0 if self.bundle is None else len(self.bundle.pickled),
            "by_value": [{"name": _bounded(one.name), "bytes": one.size} for one in self.by_value[:MAX_LISTED]],
            "by_reference": [
                {"module": _bounded(one.module), "source": _bounded(one.source)}
                for one in self.by_reference[:MAX_LISTED]
            ],
        }


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with errors first, then by place; of those with the same kind and path, the first."""
    distinct: dict[tuple[str, str, str], Finding] = {}
    for one in findings:
        distinct.setdefault((one.code, one.what, one.where), one)
    return tuple(sorted(distinct.values(), key=lambda one: (one.severity, one.file, one.line, one.code, one.what)))


def _bounded(text: str) -> str:
    # what an author's object says of itself may be anything
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
