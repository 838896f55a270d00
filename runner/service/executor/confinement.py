"""How strangers' bundles are confined here, tried out before any is taken."""

from __future__ import annotations

from dataclasses import dataclass

from runner.errors import SandboxUnavailableError
from runner.provision import ProvisionOptions
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import Machine
from runner.service.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """How every job of an executor runs.

    Args:
        sandbox: The sandbox level.
        network: The network mode.
    """

    sandbox: str = "namespaces"
    network: str = "model-only"

    @property
    def provisioning(self) -> ProvisionOptions:
        """How packages are installed: wheels alone, since a source distribution runs code of its own."""
        return ProvisionOptions(only_binary=True, sandbox=self.sandbox)


def confinement(settings: Settings, *, machine: Machine | None = None) -> Confinement:
    """Try out what uploads need.

    Args:
        settings: Whether something weaker will do.
        machine: What there is; `None` looks at this machine.

    Raises:
        SandboxUnavailableError: it cannot be had on this machine, and nothing weaker is allowed.
    """
    wanted = Confinement()
    try:
        choose_policy(wanted.sandbox, wanted.network, machine=machine)
    except SandboxUnavailableError as error:
        if not settings.executors.insecure_sandbox:
            error.hint = (
                f"{error.hint} Uploads are not run without it; --insecure-sandbox runs them all the same, and then "
                "they can read and use what this user can."
            ).strip()
            raise
        return Confinement(sandbox=choose_policy("auto", "open", machine=machine).level, network="open")
    return wanted
