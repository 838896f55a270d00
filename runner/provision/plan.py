"""What is to be installed, decided from the inputs alone, and the key those inputs give.

Comes in: a bundle's metadata or a list of requirements. Goes out: a `Plan`, and the key of the venv that meets it.
Refuses: series this installation cannot run, before anything is looked for or installed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from runner.errors import IncompatibleBundleError, RequirementError, UsageError
from runner.provision.index import redact_addresses
from runner.provision.interpreter import Interpreter
from runner.provision.lock import LOCK_NAME, Lock, markers
from runner.provision.options import ProvisionOptions
from runner.provision.ranges import check_pins
from runner.provision.wheel import (
    DISTRIBUTION,
    LIBRARY_NEEDS,
    WORKER_NEEDS,
    OwnWheel,
    own_extra,
    own_requirements,
    own_requires_python,
    own_version,
)

if TYPE_CHECKING:
    from benchmax.bundle import BundleMetadata

KEY_FORMAT: Final = 2
"""Part of every key: raised when venvs made by an older release must not be used by a newer one."""

LINK_MODE: Final = "clone"
"""Reflinks, copies where the file system has none. Hard links would let a bundle edit the installer's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a venv is to hold.

    Args:
        requirements: What the bundle or the caller asks for, as PEP 508 text.
        wheel: This installation's own package, `None` for a venv without one.
        worker_needs: Requirements of the worker's own code.
        follow_dependencies: Whether the requirements of the requirements are installed too.
        index_benchmax: Take `benchmax` from the index, within the series: the bundle cannot have ours.
        lock: What to install, exactly; nothing is resolved then.
    """

    requirements: tuple[str, ...]
    wheel: OwnWheel | None = None
    worker_needs: tuple[str, ...] = ()
    follow_dependencies: bool = True
    index_benchmax: bool = False
    lock: Lock | None = None

    def lines(self, wheel_path: Path | None) -> list[str]:
        """Return everything to resolve, one PEP 508 requirement each.

        Args:
            wheel_path: Where our own wheel lies, if it is to be used.
        """
        lines = list(self.requirements)
        if self.wheel is not None and self.index_benchmax:
            lines.append(f"{DISTRIBUTION}=={series_of(self.wheel.version)}.*")
        elif wheel_path is not None:
            # a requirement on our own package that ours meets has nothing to add to the direct reference
            lines = [line for line in lines if _name(line) != DISTRIBUTION]
            lines.append(f"{DISTRIBUTION} @ {wheel_path.as_uri()}")
        return [*lines, *self.worker_needs]

    def key(self, interpreter: Interpreter, *, installer: str, options: ProvisionOptions) -> str:
        """Name the venv these inputs give.

        Args:
            interpreter: What it is made from.
            installer: Family of the installer, `uv` or `pip`.
            options: How packages are looked for and chosen; credentials have no part in the key.

        Raises:
            RequirementError: a requirement refers to a local file that is not there.
        """
        inputs = {
            "format": KEY_FORMAT,
            "requirements": sorted(self.requirements),
            "files": {line: content for line in self.requirements if (content := _file_content(line))},
            "interpreter": interpreter.identity(),
            "wheel": self.wheel.digest if self.wheel is not None else None,
            "worker_needs": sorted(self.worker_needs),
            "follow_dependencies": self.follow_dependencies,
            "link_mode": LINK_MODE,
            "installer": installer,
            "only_binary": options.only_binary,
            # a lock leaves nothing to look for or to choose
            "packages": options.key_inputs() if self.lock is None else self.lock.digest,
        }
        text = json.dumps(inputs, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]

    def shown(self) -> list[str]:
        """Return the requirements without credentials, for a manifest."""
        return [redact_addresses(line) for line in self.requirements]


def plan_for_bundle(metadata: BundleMetadata, *, wheel: OwnWheel, options: ProvisionOptions) -> Plan:
    """Plan the venv of a bundle.

    Args:
        metadata: The bundle's metadata.
        wheel: This installation's own package.
        options: How packages are looked for and chosen; a lock is read and checked.

    Raises:
        RequirementError: a requirement cannot be passed on to an installer, leaves no version the worker could run
            with, or is not what the lock was made for.
        UsageError: there is no lock, but there has to be one.
    """
    series = metadata.python_version.strip()
    requirements = check_requirements(metadata.pip_dependencies)
    index_benchmax = any(not _met_by(line, wheel.version) for line in requirements)
    lock = None
    if options.lock is not None:
        lock = Lock.read(options.lock)
        index_benchmax = lock.has_benchmax
    elif options.locked:
        raise UsageError(f"a lock is demanded, but there is no {LOCK_NAME}.", hint="Make it with `benchmax lock DIR`.")
    if not index_benchmax:
        requirements = _with_extras(requirements, markers(series))
    worker_needs = own_requirements(WORKER_NEEDS)
    # another release of benchmax has other needs, which only its index knows
    needs = worker_needs if index_benchmax else (*own_requirements(LIBRARY_NEEDS), *worker_needs)
    check_pins(requirements, needs, environment=markers(series), benchmax=wheel.version)
    if lock is not None:
        in_series = (f"{DISTRIBUTION}=={series_of(wheel.version)}.*",) if index_benchmax else ()
        lock.check(requirements=requirements, needs=(*needs, *in_series), series=series, options=options)
    return Plan(
        requirements=requirements,
        wheel=wheel,
        worker_needs=worker_needs,
        index_benchmax=index_benchmax,
        lock=lock,
    )


def check_series(metadata: BundleMetadata) -> None:
    """Check from metadata alone that this installation can run a bundle.

    Raises:
        IncompatibleBundleError: its Python series is not supported, or its benchmax series is not ours.
    """
    ours = own_version()
    python = metadata.python_version.strip()
    supported = own_requires_python()
    if not re.fullmatch(r"\d+\.\d+", python):
        raise IncompatibleBundleError(
            f"the bundle names Python {python!r}, which is not a series such as 3.12.", hint="Bundle it again."
        )
    if not SpecifierSet(supported).contains(python):
        raise IncompatibleBundleError(
            f"the bundle was made with Python {python}, but benchmax {ours} runs bundles of {_listed(supported)}.",
            hint="Bundle it again with one of those.",
        )
    theirs = metadata.benchmax_version.strip()
    if "unknown" in (theirs, ours):
        raise IncompatibleBundleError(
            f"the bundle was made with benchmax {theirs} and this is benchmax {ours}, so they cannot be compared.",
            hint="Bundle it again with an installed release.",
        )
    if series_of(theirs) != series_of(ours):
        raise IncompatibleBundleError(
            f"the bundle was made with benchmax {theirs}, but this is benchmax {ours}; major.minor must be equal.",
            hint=f"Bundle it again with benchmax {series_of(ours)}, or install benchmax {series_of(theirs)}.",
        )


def _listed(supported: str) -> str:
    """Spell out the series that a version specifier admits."""
    known = (f"3.{minor}" for minor in range(8, 40))
    return "Python " + ", ".join(series for series in known if SpecifierSet(supported).contains(series))


def series_of(version: str) -> str:
    """Return `major.minor` of a version.

    Raises:
        IncompatibleBundleError: it does not begin with two numbers.
    """
    parts = version.split(".")
    try:
        return f"{int(parts[0])}.{int(parts[1])}"
    except (IndexError, ValueError):
        raise IncompatibleBundleError(
            f"the benchmax version {version!r} does not begin with major.minor.", hint="Bundle it again."
        ) from None


def check_requirements(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return requirements as normalised PEP 508 text.

    Raises:
        RequirementError: one of them is not a PEP 508 requirement, or holds `${`, which installers would replace by
            the value of a variable.
    """
    checked = []
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise RequirementError(
                f"{redact_addresses(text)!r} is not a requirement: {str(error).splitlines()[0]}.",
                hint="Write it as PEP 508 has it, such as name>=1.2 or name @ https://host/file.whl.",
            ) from None
        line = str(requirement)
        if "${" in line or "\n" in line or "\r" in line:
            raise RequirementError(
                f"the requirement on {requirement.name} holds '${{' or a line break.",
                hint="Write the address out in full.",
            )
        checked.append(line)
    return tuple(checked)


def _with_extras(requirements: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Put what extras of our own package ask for in their place, so that it is judged, shown and locked as the rest.

    Raises:
        RequirementError: there is no such extra.
    """
    lines: list[str] = []
    for line in requirements:
        requirement = Requirement(line)
        applies = requirement.marker is None or requirement.marker.evaluate({**environment})
        if canonicalize_name(requirement.name) == DISTRIBUTION and requirement.extras and applies:
            for extra in sorted(requirement.extras):
                lines += own_extra(extra, environment)
            requirement.extras = set()
        lines.append(str(requirement))
    return tuple(dict.fromkeys(lines))


def _name(line: str) -> str:
    return canonicalize_name(Requirement(line).name)


def _met_by(line: str, version: str) -> bool:
    """Whether a requirement leaves room for our own package: another one, or one on benchmax that ours meets."""
    requirement = Requirement(line)
    if canonicalize_name(requirement.name) != DISTRIBUTION:
        return True
    return requirement.url is None and requirement.specifier.contains(version, prereleases=True)


def _file_content(line: str) -> str:
    """Return a digest of the local file a requirement refers to, empty when it refers to none."""
    url = Requirement(line).url
    if url is None or urlsplit(url).scheme != "file":
        return ""
    path = Path(unquote(urlsplit(url).path))
    digest = hashlib.sha256()
    try:
        if path.is_dir():
            # a source tree is read by its build anyway; its listing tells whether it changed
            for file in sorted(path.rglob("*")):
                status = file.stat()
                digest.update(f"{file.relative_to(path)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        else:
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
    except OSError as error:
        raise RequirementError(
            f"the requirement {line!r} refers to a local file that cannot be read: {error.strerror}.",
            hint="Bundles travel; refer to an index or an https address instead.",
        ) from None
    return digest.hexdigest()
