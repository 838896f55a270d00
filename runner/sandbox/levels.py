"""From what a caller asks for to the policy it gets: levels are tried out, networks are those that are built.

Comes in: `auto` or a level, a network, what a worker may take. Goes out: a policy that works on this machine. Refuses:
what is not known, and a level by name that does not work here.
"""

from __future__ import annotations

from typing import Final, get_args

from runner.sandbox.machine import Machine, this_machine
from runner.sandbox.policy import BUILT_NETWORKS, Level, Network, SandboxPolicy, choose
from runner.sandbox.probe import require_level, strongest
from runner.sandbox.resources import Resources, rlimits

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
AUTO: Final = "auto"


def choose_policy(
    sandbox: str, network: str, *, memory_bytes: int | None = None, machine: Machine | None = None
) -> SandboxPolicy:
    """Turn what a caller asks for into a policy that works here; may start a trial run of each level.

    Args:
        sandbox: `auto`, for the strongest level that works, or a level.
        network: The network mode.
        memory_bytes: Private memory of each process; `None` sets no limit.
        machine: What there is; `None` looks at this machine.

    Raises:
        UsageError: a value is not known, or its mechanism does not exist in this release.
        SandboxUnavailableError: the level does not work here; the text says what is in the way.
    """
    choose("sandbox", sandbox, known=(AUTO, *LEVELS), built=(AUTO, *LEVELS))
    choose("network", network, known=get_args(Network), built=BUILT_NETWORKS)
    mode = next(mode for mode in BUILT_NETWORKS if mode == network)
    found = this_machine() if machine is None else machine
    level = next((level for level in LEVELS if level == sandbox), None)
    if level is None:
        level = strongest(found)
    else:
        require_level(level, found)
    return SandboxPolicy(level=level, network=mode, rlimits=rlimits(Resources(memory_bytes=memory_bytes), tasks=0))
