"""What an installer can do for provisioning, and the choice between the two there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Literal, Protocol

from runner.errors import UsageError
from runner.provision.options import Choice
from runner.provision.pip import Pip
from runner.provision.place import Place
from runner.provision.resolution import Resolution
from runner.provision.uv import Uv, find_uv
from runner.provision.workspace import Workspace


class Installer(Protocol):
    """Resolves requirements to a lock and installs a lock. Both only ever act on the venv they are given."""

    @property
    def title(self) -> str:
        """Name and version."""
        ...

    async def resolve(
        self,
        lines: Sequence[str],
        *,
        allowed: AbstractSet[str],
        forbidden: AbstractSet[str],
        follow_dependencies: bool,
        universal: bool = False,
    ) -> Resolution:
        """Find the newest versions that meet all requirements.

        Args:
            lines: PEP 508 requirements.
            allowed: Canonical names of packages whose prereleases count like any other release.
            forbidden: Canonical names of packages of which no prerelease may be taken.
            follow_dependencies: Whether requirements of requirements count.
            universal: Resolve for all platforms, where `locks_all_platforms`, and for no other series.

        Returns:
            Exact packages; addresses in it are those of the indexes, without credentials, and paths are absolute.

        Raises:
            InstallerFailedError: there is no solution, or the installer could not work; it carries the reason.
            InstallTimeoutError: a deadline passed.
        """
        ...

    @property
    def locks_all_platforms(self) -> bool:
        """Whether `universal` resolutions hold for other kinds of machines."""
        ...

    async def install(self, lock: Resolution, *, python: Path) -> None:
        """Install exactly what a lock says into the venv of an interpreter.

        Nothing is built: what has no wheel is refused.

        Raises:
            InstallerFailedError: a package could not be fetched or written.
            InstallTimeoutError: a deadline passed.
        """
        ...

    async def build(self, entry: Mapping[str, Any]) -> tuple[Place, Path]:
        """Build the wheel of one entry of a lock, in a place of its own, where code of packages runs.

        Returns:
            The place, and a folder in it below which the wheel is, perhaps with others.

        Raises:
            InstallerFailedError: the package could not be fetched or built.
            InstallTimeoutError: a deadline passed.
        """
        ...


def installer_family(choice: Choice) -> Literal["uv", "pip"]:
    """Decide which installer is used, without starting it.

    Raises:
        UsageError: uv is asked for and missing, or the name is unknown.
    """
    if choice not in ("auto", "uv", "pip"):
        raise UsageError(f"installer {choice!r} is not known.", hint="Use one of: auto, uv, pip.")
    if choice == "pip":
        return "pip"
    if find_uv() is not None:
        return "uv"
    if choice == "uv":
        raise UsageError("uv is asked for but not installed.", hint="Install uv 0.12 or newer, or use pip.")
    return "pip"


def make_installer(family: Literal["uv", "pip"], workspace: Workspace) -> Installer:
    """Set up an installer for one build.

    Raises:
        ProvisionError: the installer that comes with this installation is too old.
    """
    return Uv(workspace) if family == "uv" else Pip(workspace)
