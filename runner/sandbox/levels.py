"""From what a caller asks for to the policy it gets: levels and networks are tried out.

Comes in: `auto` or a level, a network, what a worker may take. Goes out: a policy that works on this machine. Refuses:
what is not known, a level by name that does not work here, and a network that the level cannot make.
"""

from __future__ import annotations

from typing import Final, get_args

from runner.errors import SandboxUnavailableError
from runner.limits import Limits
from runner.sandbox.cgroups import control_groups, usable_groups, wanted
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.machine import Machine, this_machine
from runner.sandbox.policy import NETWORKS, Level, Network, SandboxPolicy, choose
from runner.sandbox.probe import network_blocker, require_level, strongest
from runner.sandbox.resources import not_limited, rlimits
from runner.sandbox.unprivileged import unprivileged_user

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
AUTO: Final = "auto"
SPARE_PROCESSES: Final = 16
"""What the kernel's limit on a user's processes is above the one of a control group, where there is one."""


def choose_policy(
    sandbox: str,
    network: str,
    *,
    endpoints: tuple[Endpoint, ...] = (),
    limits: Limits | None = None,
    machine: Machine | None = None,
) -> SandboxPolicy:
    """Turn what a caller asks for into a policy that works here; may start a trial run of each level.

    Limits on the whole tree are in it as far as this machine has the control groups for them.

    Args:
        sandbox: `auto`, for the strongest level that works, or a level.
        network: The network mode.
        endpoints: What can be connected to in a network of its own.
        limits: What it may use; the default ones when `None`.
        machine: What there is; `None` looks at this machine.

    Raises:
        UsageError: a value is not known.
        SandboxUnavailableError: the level does not work here, or the network does not, or not at this level; the text
            says what is in the way.
    """
    choose("sandbox", sandbox, known=(AUTO, *LEVELS), built=(AUTO, *LEVELS))
    choose("network", network, known=NETWORKS, built=NETWORKS)
    mode = next(mode for mode in NETWORKS if mode == network)
    found = this_machine() if machine is None else machine
    level = next((level for level in LEVELS if level == sandbox), None)
    if mode != "open":
        level = _level_of_network(mode, level, found)
    elif level is None:
        level = strongest(found)
    else:
        require_level(level, found)
    limits = limits or Limits()
    groups = usable_groups(wanted(limits))
    return SandboxPolicy(
        level=level,
        network=mode,
        endpoints=endpoints,
        # the group can be asked whether its limit was met, so that is to be the one that is
        rlimits=rlimits(limits, tasks=SPARE_PROCESSES if groups.has("pids") else 0),
        groups=control_groups(limits, groups),
        disk_bytes=limits.disk_bytes,
    )


def what_is_not_limited(level: Level, limits: Limits, machine: Machine | None = None) -> tuple[str, ...]:
    """Say what limits do not hold of a worker at a level on this machine, for reports.

    Args:
        level: The level.
        limits: What it may use.
        machine: What there is; `None` looks at this machine.
    """
    found = this_machine() if machine is None else machine
    user = None if level == "off" else unprivileged_user(found)
    return not_limited(
        limits,
        usable_groups(wanted(limits)),
        sandboxed=level != "off",
        root=found.uid == 0 and user is None,
        own_user=user is not None,
    )


def _level_of_network(mode: Network, level: Level | None, machine: Machine) -> Level:
    """The level at which a worker has a network of its own: the only one that can make it, if that was asked for.

    Raises:
        SandboxUnavailableError: another one was, or it does not work here.
    """
    if level not in (None, "namespaces"):
        raise SandboxUnavailableError(
            f"network {mode}: the sandbox level {level} leaves a worker the machine's network.",
            hint="Use the level namespaces (--sandbox namespaces or auto), or --network open.",
        )
    blocker = network_blocker(machine)
    if blocker is not None:
        raise SandboxUnavailableError(
            f"network {mode}: it needs the sandbox level namespaces, but {blocker.fact}.", hint=f"{blocker.remedy}."
        )
    return "namespaces"
