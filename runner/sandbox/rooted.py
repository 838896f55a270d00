"""A policy with a root of its own, compiled to steps and a command line of bubblewrap; pure.

The launcher makes the user namespace and the mounts, and bubblewrap, as root of that, what is left: its own `--bind`
of a root is all that version 0.8 has. Nothing of the root is memory but /dev/shm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from runner.limits import SANDBOX_SHM_BYTES
from runner.sandbox import bubblewrap, view
from runner.sandbox.machine import Machine
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.private_root import CAPABILITIES, PROGRAM, PrivateRoot

PROGRAM_FD: Final = 47
"""Descriptor on which bubblewrap reads the program that is shown inside."""


def root_steps(policy: SandboxPolicy, root: PrivateRoot) -> Iterable[Mapping[str, object]]:
    """How it becomes the root user, and what that mounts; limits are in force before, and hold all users together."""
    yield {"do": "users", "uid": policy.uid, "count": root.users}
    yield {"do": "reach", "paths": [*policy.readable, root.root]}
    yield root.step()


def arguments(
    policy: SandboxPolicy,
    root: PrivateRoot,
    machine: Machine,
    program: str,
    argv: Sequence[str],
    cwd: str,
    status: int | None,
) -> list[str]:
    """Compile the command line; arguments as those of `bubblewrap.arguments`."""
    words = [program, "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup"]
    words += ["--hostname", view.HOST_NAME, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for name in CAPABILITIES:
        words += ["--cap-add", name]
    # with all that is mounted in it
    words += ["--bind", root.root, "/"]
    for folder, target in machine.root_folders:
        words += ["--symlink", target, folder] if target else ["--ro-bind", folder, folder]
    files = [*bubblewrap.setting_files(policy, machine), *((fd, path) for fd, path, _ in bubblewrap.name_files(policy))]
    files += [(bubblewrap.PASSWD_FD, view.USERS[0]), (bubblewrap.GROUP_FD, view.USERS[1])]
    for number, path in files:
        words += ["--perms", "0644", "--file", str(number), path]
    for path in (*view.SETTING_FOLDERS, view.PROCESSORS):
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc"]
    for path in (*view.DEVICES, view.TERMINAL):
        words += ["--dev-bind", path, path]
    for target, path in (*view.DEVICE_LINKS, (f"{view.TERMINALS}/ptmx", "/dev/ptmx")):
        words += ["--symlink", target, path]
    words += ["--dev-bind", root.terminals, view.TERMINALS]
    words += ["--perms", "1777", "--size", str(SANDBOX_SHM_BYTES), "--tmpfs", view.SHARED_MEMORY]
    for path in bubblewrap.outside_of_the_system(policy.readable):
        words += ["--ro-bind", path, path]
    words += ["--ro-bind-data", str(PROGRAM_FD), PROGRAM, "--chdir", cwd, "--seccomp", str(bubblewrap.FILTER_FD)]
    if status is not None:
        words += ["--json-status-fd", str(status)]
    return [*words, "--", *argv]
