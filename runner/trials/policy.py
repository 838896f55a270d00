"""From what a trial needs to how its sandbox is confined: the strongest level always, and never more than its worker.

Comes in: a request, and the policy of the worker that asks. Goes out: the sandbox's policy. Refuses: a network where
the worker has none, and a machine on which no such sandbox works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.errors import SandboxUnavailableError
from runner.limits import Limits
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import Machine, this_machine
from runner.sandbox.policy import Network, SandboxPolicy
from runner.sandbox.private_root import ROOT_ONLY, PrivateRoot
from runner.sandbox.resources import tasks_of
from runner.sandbox.unprivileged import RANGE, unprivileged_range, unprivileged_user
from runner.trials.request import TrialRefusedError, TrialRequest, bounded_limits


def network_of(request: TrialRequest, worker: Network) -> Network:
    """Return the network mode of a sandbox.

    Args:
        request: What the trial needs.
        worker: The network mode of the worker that asks.

    Raises:
        TrialRefusedError: it asks for a network, and the worker has none.
    """
    if not request.network:
        return "none"
    if worker == "none":
        raise TrialRefusedError(
            "a trial sandbox cannot be opened: its task wants a network, and this run has none (network none). "
            "Run it with --network open, or with model-only and the places that it needs."
        )
    return worker


def trial_policy(
    request: TrialRequest, limits: Limits, *, network: Network, endpoints: tuple[Endpoint, ...] = ()
) -> SandboxPolicy:
    """Choose how a sandbox is confined; may start a trial run of the level.

    Args:
        request: What the trial needs.
        limits: What it may use.
        network: The network mode of the worker that asks.
        endpoints: What can be connected to at `model-only`.

    Raises:
        TrialRefusedError: there is no such sandbox to be had.
    """
    mode = network_of(request, network)
    try:
        return choose_policy(
            "namespaces",
            mode,
            endpoints=endpoints if mode == "model-only" else (),
            limits=bounded_limits(request, limits),
        )
    except SandboxUnavailableError as error:
        raise TrialRefusedError(f"a trial sandbox cannot be opened: {error.message} {error.hint}".strip()) from error


def fit_root(
    policy: SandboxPolicy, *, folder: Path, program: bytes, readable: Sequence[str], machine: Machine | None = None
) -> SandboxPolicy:
    """Fit a policy to one sandbox: its own root, its own users, and the interpreter that it needs.

    Args:
        policy: As it was chosen.
        folder: Where its root is, absolute and without symbolic links.
        program: What runs in it.
        readable: The interpreter's own files.
        machine: What there is; `None` looks at this machine.
    """
    found = this_machine() if machine is None else machine
    first = unprivileged_range(found)
    uid = unprivileged_user(found) if first is None else first
    tasks = tasks_of(found.uid) if uid is None else 0
    return replace(
        policy,
        root=PrivateRoot(folder=str(folder), program=program, users=ROOT_ONLY if first is None else RANGE),
        readable=tuple(readable),
        uid=uid,
        umask=0o022,
        rlimits=tuple(
            (name, soft + tasks, hard + tasks) if name == "NPROC" else (name, soft, hard)
            for name, soft, hard in policy.rlimits
        ),
    )
