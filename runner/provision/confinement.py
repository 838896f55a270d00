"""How programs of a provisioning are confined: installers that run no code of packages, and builds, which do.

Comes in: the level that was chosen for the installation. Goes out: one policy for each kind of program. An installer
keeps the caller's user, so that what it downloads stays the caller's; a build becomes another one where it can, and
writes into its own folder alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from runner.environ import CERTIFICATES
from runner.limits import Limits
from runner.provision.proxy import PROXY
from runner.sandbox.fitting import fit
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.probe import network_blocker

UMASK: Final = 0o022
"""What is installed is for workers, too, which may run as another user."""

RELEASE_FILES: Final = ("/etc/debian_version", "/etc/lsb-release", "/etc/os-release")
"""What pip tells an index of the system; it gives up where one is there and cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How one provisioning's programs are confined.

    Args:
        policy: Of the level that was chosen, with the limits of a worker.
    """

    policy: SandboxPolicy

    @classmethod
    def at(cls, sandbox: str, limits: Limits) -> Confinement:
        """Choose a level.

        Args:
            sandbox: `auto` (the strongest level there is) or a level.
            limits: What a build may use.

        Raises:
            SandboxUnavailableError: the level does not work here; the text says what is in the way.
        """
        policy = choose_policy(sandbox, "open", limits=limits)
        if policy.level == "namespaces" and network_blocker() is None:
            policy = replace(policy, network="model-only", endpoints=(PROXY,))
        return cls(policy=policy)

    @property
    def own_network(self) -> bool:
        """Whether programs have a network of their own, with a proxy as the only way out."""
        return self.policy.network != "open"

    def of_installer(
        self, *, scratch: Path, readable: Iterable[Path | str], writable: Iterable[Path | str]
    ) -> SandboxPolicy:
        """Return the policy of a program that runs no code of packages.

        Args:
            scratch: Its working folder.
            readable: What it reads beside the system; what does not exist is left out.
            writable: What it writes beside its working folder; what does not exist is left out.
        """
        level = self.policy.level
        if level == "off":
            return SandboxPolicy(umask=UMASK)
        return SandboxPolicy(
            level=level,
            network=self.policy.network,
            endpoints=self.policy.endpoints,
            private=str(scratch.resolve()),
            shared=_names([scratch, *writable]),
            readable=_names([*readable, *RELEASE_FILES]),
            umask=UMASK,
        )

    def of_build(self, *, private: Path, readable: Sequence[Path | str]) -> SandboxPolicy:
        """Return the policy of a build, which has the limits of a worker.

        Args:
            private: The only folder it writes.
            readable: What it reads beside the system; what does not exist is left out.

        Raises:
            OSError: a path cannot be resolved.
        """
        if self.policy.level == "off":
            return SandboxPolicy(umask=UMASK)
        shown = [str(path) for path in (*readable, *RELEASE_FILES)]
        fitted = fit(self.policy, this_machine(), private=private, readable=shown)
        return replace(fitted, umask=UMASK)


def certificates() -> list[str]:
    """Return the files and folders of certificates that the caller's variables name."""
    return [os.environ[name] for name in CERTIFICATES if os.environ.get(name)]


def _names(paths: Iterable[Path | str]) -> tuple[str, ...]:
    """Return each path that exists, under its own name and under the one to which links lead."""
    there = [Path(path).absolute() for path in paths if Path(path).exists()]
    return tuple(dict.fromkeys(str(name) for path in there for name in (path, path.resolve())))
