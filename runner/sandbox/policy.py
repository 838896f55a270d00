"""What a process may do, as a frozen value, and the pure function that turns it into a command line.

Comes in: a requested level and the command. Goes out: the command to run and the settings the supervisor applies to
it. Refuses: a level or network mode whose mechanism does not exist here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from runner.errors import UsageError

Level = Literal["off", "landlock", "namespaces"]
Network = Literal["open", "model-only", "none"]
Credentials = Literal["headers", "gateway"]

BUILT_LEVELS: tuple[Level, ...] = ("off",)
BUILT_NETWORKS: tuple[Network, ...] = ("open",)
BUILT_CREDENTIALS: tuple[Credentials, ...] = ("headers",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPolicy:
    """How a supervised process is confined.

    Args:
        level: `off` confines only what a supervisor can without the kernel's help: its own session and process
            tree, an environment built from empty, closed descriptors, resource limits, no new privileges. It does
            not hide the caller's files, memory or environment from a process of the same user.
        network: `open` shares the host's network, loopback included.
        rlimits: Soft and hard limit by the name the `resource` module gives it, without the `RLIMIT_` prefix.
        no_new_privileges: Set-uid programs give nothing to the process or its children.
    """

    level: Level = "off"
    network: Network = "open"
    # core dumps of untrusted code would land in its working directory with whatever was in memory
    rlimits: tuple[tuple[str, int, int], ...] = field(default=(("CORE", 0, 0),))
    no_new_privileges: bool = True

    def mechanisms(self) -> tuple[str, ...]:
        """Name each mechanism in force, for reports."""
        names = ["supervisor", "own session", "environment from empty", "closed descriptors"]
        names += [f"rlimit {name.lower()}" for name, _, _ in self.rlimits]
        if self.no_new_privileges:
            names.append("no new privileges")
        return tuple(names)


def choose_policy(sandbox: str, network: str, *, memory_bytes: int | None = None) -> SandboxPolicy:
    """Turn what the caller asked for into a policy that can be had.

    Args:
        sandbox: `auto` or a level. `auto` takes the strongest level that is built.
        network: A network mode.
        memory_bytes: Private memory of each process; `None` sets no limit. Root may lift it again.

    Raises:
        UsageError: the value is unknown, or its mechanism does not exist in this release.
    """
    level = choose("sandbox", sandbox, known=("auto", *get_args(Level)), built=("auto", *BUILT_LEVELS))
    mode = choose("network", network, known=get_args(Network), built=BUILT_NETWORKS)
    policy = SandboxPolicy(level=_level(level), network=_network(mode))
    if memory_bytes is None:
        return policy
    return replace(policy, rlimits=(*policy.rlimits, ("DATA", memory_bytes, memory_bytes)))


def choose(option: str, value: str, *, known: Sequence[str], built: Sequence[str]) -> str:
    """Check one option's value against what exists.

    Raises:
        UsageError: the value is unknown or not built; the text lists what there is.
    """
    if value in built:
        return value
    there_is = ", ".join(built)
    if value in known:
        raise UsageError(f"{option} {value!r} is not built yet.", hint=f"This release has: {there_is}.")
    raise UsageError(f"{option} {value!r} is not known.", hint=f"Use one of: {there_is}.")


def command(policy: SandboxPolicy, argv: Sequence[str]) -> list[str]:
    """Compile the policy around a command; pure, so that tests can hold it word for word."""
    match policy.level:
        case "off":
            return list(argv)
        case "landlock" | "namespaces":
            raise UsageError(f"sandbox {policy.level!r} is not built yet.", hint="This release has: off.")


def _level(value: str) -> Level:
    return "off" if value == "auto" else next(level for level in BUILT_LEVELS if level == value)


def _network(value: str) -> Network:
    return next(mode for mode in BUILT_NETWORKS if mode == value)
