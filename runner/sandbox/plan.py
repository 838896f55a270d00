"""A policy compiled for a machine: the steps that confine a process before it becomes the command, and the command.

Pure: everything that has to be looked at comes in. The steps are data that the launcher carries out in their order.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.errors import SandboxUnavailableError
from runner.limits import SANDBOX_SHM_BYTES
from runner.sandbox import bubblewrap, endpoints, landlock, rooted, seccomp, view
from runner.sandbox.closed import without_inner
from runner.sandbox.landlock import Rule, Ruleset
from runner.sandbox.machine import Machine
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.unprivileged import unprivileged_user

Step = Mapping[str, object]
"""One JSON object: what to `do`, and what it needs for that."""

INSTALL_BUBBLEWRAP = "Install it (Debian, Ubuntu and Fedora: the package bubblewrap), or use --sandbox landlock."


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the launcher does.

    Args:
        steps: Carried out in this order, in the process that becomes the command.
        argv: The command with what is put around it.
        relayed: The command's end is told by another program, as a shell does: 128 and the number of a signal.
    """

    steps: tuple[Step, ...]
    argv: tuple[str, ...]
    relayed: bool = False


def compile_plan(
    policy: SandboxPolicy,
    machine: Machine,
    argv: Sequence[str],
    *,
    cwd: str,
    closed: Mapping[str, Sequence[str]] | None = None,
    status: int | None = None,
    listeners: int | None = None,
) -> Plan:
    """Compile a policy around a command.

    Args:
        policy: How it is confined.
        machine: What this machine offers.
        argv: The command; the first word is an absolute path.
        cwd: Its working directory.
        closed: Folders that `policy.uid` cannot enter → what it needs below them.
        status: Descriptor for bubblewrap's status.
        listeners: Descriptor of a socket over which those of the policy's endpoints are sent, in the order of
            `endpoints.listeners`, before the command starts.

    Raises:
        SandboxUnavailableError: the machine lacks what the level is made of; the text names it.
    """
    limits: list[Step] = [
        {"do": "limit", "name": name, "soft": soft, "hard": hard} for name, soft, hard in policy.rlimits
    ]
    privileges: list[Step] = [{"do": "no-new-privileges"}] if policy.no_new_privileges else []
    user = _user_steps(policy, machine, closed or {})
    match policy.level:
        case "off":
            return Plan(steps=(*user, *limits, *privileges), argv=tuple(argv))
        case "landlock":
            return Plan(
                steps=(
                    *user,
                    {"do": "drop-capabilities"},
                    *limits,
                    {"do": "no-new-privileges"},
                    _restrict(ruleset(policy, machine)),
                    {"do": "filter", "program": _text(seccomp.program(machine.architecture, own_view=False))},
                ),
                argv=tuple(argv),
            )
        case "namespaces":
            if machine.bubblewrap is None:
                raise SandboxUnavailableError(
                    "sandbox namespaces: the program bwrap is not installed.", hint=INSTALL_BUBBLEWRAP
                )
            network = _network(policy, machine, listeners)
            # as root before it becomes somebody who may not, and else as that user, in a user namespace
            first, later = (network, ()) if machine.may_make_networks else ((), network)
            if policy.root is not None:
                who = (*user, *later, *limits, *rooted.root_steps(policy, policy.root))
                words = rooted.arguments(policy, policy.root, machine, machine.bubblewrap, argv, cwd, status)
            else:
                overlay = [policy.overlay.step()] if policy.overlay is not None else []
                who = (*user, *later, *overlay, *_without_capabilities(policy, machine), *limits)
                words = bubblewrap.arguments(policy, machine, machine.bubblewrap, argv, cwd, status)
            return Plan(
                steps=(*first, *who, {"do": "no-new-privileges"}, *_scope(machine), *_files(policy, machine)),
                argv=tuple(words),
                relayed=True,
            )


def mechanisms(policy: SandboxPolicy, machine: Machine) -> tuple[str, ...]:
    """Name each mechanism in force, for reports.

    Raises:
        SandboxUnavailableError: the machine lacks what the level is made of.
    """
    names = list(policy.mechanisms())
    match policy.level:
        case "off":
            return tuple(names)
        case "landlock":
            names += [f"landlock version {machine.landlock}", *ruleset(policy, machine).names()]
        case "namespaces":
            names += ["bubblewrap", *(f"{kind} namespace" for kind in ("user", "mount", "pid", "ipc", "uts", "cgroup"))]
            names += Ruleset(handled=landlock.Right(0), scoped=landlock.scoped(machine.landlock), rules=()).names()
            if policy.network != "open":
                names.append("network namespace")
    names += ["no capabilities", "system call filter"]
    if unprivileged_user(machine) is not None:
        names.append("unprivileged user")
    return tuple(names)


def ruleset(policy: SandboxPolicy, machine: Machine) -> Ruleset:
    """The file rules of the level `landlock`.

    Raises:
        SandboxUnavailableError: the kernel cannot give what the level promises.
    """
    read: list[Rule] = [Rule(view.SYSTEM, landlock.READ)]
    roots = (folder for folder, _ in machine.root_folders)
    optional = (*roots, *view.SETTING_FILES, *view.SETTING_FOLDERS, *view.USERS, view.PROCESSORS)
    read += [Rule(path, landlock.READ, needed=False) for path in optional]
    # the whole of it: rules on single files there are lost whenever the kernel forgets and remakes them
    read.append(Rule("/proc", landlock.READ & ~landlock.Right.EXECUTE))
    read += [Rule(path, landlock.READ) for path in bubblewrap.outside_of_the_system(policy.readable)]
    write = [Rule(path, landlock.DEVICE) for path in view.DEVICES]
    write += [Rule(path, landlock.WRITE) for path in policy.writable]
    if has_own_mounts(policy, machine):
        # a private one, so that nothing of other processes is in it
        write.append(Rule(view.SHARED_MEMORY, landlock.WRITE & ~landlock.Right.EXECUTE))
    return landlock.ruleset(machine.landlock, [*read, *write])


def has_own_mounts(policy: SandboxPolicy, machine: Machine) -> bool:
    """Whether the launcher, as root, makes a mount namespace for a process at the level `landlock`."""
    return policy.level == "landlock" and policy.uid is not None and machine.may_mount


def _files(policy: SandboxPolicy, machine: Machine) -> Iterable[Step]:
    """What bubblewrap reads on descriptors."""
    if policy.root is not None:
        passwd, group = view.ROOT_USERS, view.ROOT_GROUPS
    else:
        uid = machine.uid if policy.uid is None else policy.uid
        passwd, group = view.passwd(uid, f"{policy.private or ''}/home"), view.group(uid)
    files = (
        (bubblewrap.FILTER_FD, seccomp.program(machine.architecture, own_view=True)),
        (bubblewrap.PASSWD_FD, passwd.encode()),
        (bubblewrap.GROUP_FD, group.encode()),
        *((number, text.encode()) for number, _, text in bubblewrap.name_files(policy)),
        *([] if policy.root is None else [(rooted.PROGRAM_FD, policy.root.program)]),
    )
    for number, data in files:
        yield {"do": "memory-file", "descriptor": number, "content": _text(data)}
    for number, path in bubblewrap.setting_files(policy, machine):
        yield {"do": "open-file", "descriptor": number, "path": path}


def _user_steps(policy: SandboxPolicy, machine: Machine, closed: Mapping[str, Sequence[str]]) -> Iterable[Step]:
    if policy.uid is None:
        return
    own = has_own_mounts(policy, machine)
    if closed and not machine.may_mount:
        folders = ", ".join(closed)
        raise SandboxUnavailableError(
            f"sandbox {policy.level}: user {policy.uid} cannot enter {folders}, and root may not mount here.",
            hint="Run as an ordinary user, or put the cache and the interpreter where everybody can read them.",
        )
    own_folder = policy.private if policy.root is None else policy.root.folder
    if own_folder is not None:
        yield {"do": "give", "path": own_folder, "uid": policy.uid}
    if closed or own:
        yield {"do": "mounts"}
    for folder, paths in closed.items():
        shown = [[path, path in policy.writable] for path in without_inner(paths)]
        yield {"do": "show", "folder": folder, "paths": shown}
    if own:
        yield {"do": "tmpfs", "path": view.SHARED_MEMORY, "max_bytes": SANDBOX_SHM_BYTES}
        yield {"do": "proc"}
    if policy.root is not None:
        # it becomes somebody else as it makes its user namespace
        return
    yield {"do": "become", "uid": policy.uid}
    yield {"do": "reach", "paths": [*policy.readable, *policy.writable]}


def _network(policy: SandboxPolicy, machine: Machine, listeners: int | None) -> tuple[Step, ...]:
    if policy.network == "open":
        return ()
    return (
        {
            "do": "network",
            "user_namespace": not machine.may_make_networks,
            "addresses": list(endpoints.added_addresses(policy.endpoints)),
            "listeners": [[found.address, found.endpoint.port] for found in endpoints.listeners(policy.endpoints)],
            "descriptor": listeners,
        },
    )


def _without_capabilities(policy: SandboxPolicy, machine: Machine) -> Iterable[Step]:
    # whoever stays root needs one to be root in a user namespace, too; there bubblewrap drops all of them
    if machine.uid != 0 or policy.uid is not None:
        yield {"do": "drop-capabilities"}


def _scope(machine: Machine) -> Iterable[Step]:
    """Keep abstract sockets and signals inside, where Landlock can: a shared network would let the former out."""
    scope = landlock.scoped(machine.landlock)
    if scope:
        # no file rights: with any, bubblewrap could not mount
        yield _restrict(Ruleset(handled=landlock.Right(0), scoped=scope, rules=()))


def _restrict(rules: Ruleset) -> Step:
    return {
        "do": "restrict",
        "handled": int(rules.handled),
        "scoped": int(rules.scoped),
        "rules": [[rule.path, int(rule.rights), rule.needed] for rule in rules.rules],
        "file_rights": int(landlock.FILE_RIGHTS & rules.handled),
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
