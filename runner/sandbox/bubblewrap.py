"""The policy of the level `namespaces` as a command line of bubblewrap; pure, held word for word by tests.

The root starts empty and read-only, and only what is named is put into it. The user keeps its number, and device nodes
are bound one by one: with another number, or with `--dev`, bubblewrap up to 0.8 leaves the network namespace to a user
namespace further out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from runner.limits import SANDBOX_SHM_BYTES, SANDBOX_TMP_BYTES
from runner.sandbox import view
from runner.sandbox.closed import without_inner
from runner.sandbox.endpoints import hosts_file
from runner.sandbox.machine import Machine
from runner.sandbox.policy import SandboxPolicy

FILTER_FD: Final = 40
PASSWD_FD: Final = 41
GROUP_FD: Final = 42
HOSTS_FD: Final = 43
NAME_SERVICES_FD: Final = 44
SETTINGS_FD: Final = 100
"""Descriptors that bubblewrap reads and closes, the last and those after it for one file each; beyond all that a
command is given, and the last beyond all that its supervisor sets aside as well."""

LISTENERS_FD: Final = 45
"""Descriptor on which the sockets of a network of its own are handed out, before bubblewrap starts."""

STATUS_FD: Final = 46
"""Descriptor on which it can say how far it came."""


def arguments(
    policy: SandboxPolicy, machine: Machine, program: str, argv: Sequence[str], cwd: str, status: int | None = None
) -> list[str]:
    """Compile a policy around a command.

    Args:
        policy: Of level `namespaces`.
        machine: What the root's folders are there.
        program: The path of `bwrap`.
        argv: The command.
        cwd: Its working directory, inside.
        status: Descriptor on which bubblewrap says, as JSON, how far it came; `None` for none.
    """
    words = [program, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup"]
    words += ["--hostname", view.HOST_NAME, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--ro-bind", view.SYSTEM, view.SYSTEM]
    for folder, target in machine.root_folders:
        words += ["--symlink", target, folder] if target else ["--ro-bind", folder, folder]
    for number, path in setting_files(policy, machine):
        words += ["--file", str(number), path]
    for number, path, _ in name_files(policy):
        words += ["--file", str(number), path]
    words += ["--file", str(PASSWD_FD), view.USERS[0], "--file", str(GROUP_FD), view.USERS[1]]
    for path in (*view.SETTING_FOLDERS, view.PROCESSORS):
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc"]
    for path in view.DEVICES:
        words += ["--dev-bind", path, path]
    for target, path in view.DEVICE_LINKS:
        words += ["--symlink", target, path]
    words += _memory(view.SHARED_MEMORY, SANDBOX_SHM_BYTES) + _memory(view.TEMPORARY, SANDBOX_TMP_BYTES)
    for path in outside_of_the_system(policy.readable):
        words += ["--ro-bind", path, path]
    for path in policy.writable:
        words += ["--bind", path, path]
    words += ["--remount-ro", "/", "--chdir", cwd, "--seccomp", str(FILTER_FD)]
    if status is not None:
        words += ["--json-status-fd", str(status)]
    return [*words, "--", *argv]


def setting_files(policy: SandboxPolicy, machine: Machine) -> tuple[tuple[int, str], ...]:
    """The machine's settings that are copied in, each with the descriptor it is read from."""
    left_out = () if policy.network == "open" else view.NAME_SETTINGS
    return tuple(enumerate((path for path in machine.settings if path not in left_out), SETTINGS_FD))


def name_files(policy: SandboxPolicy) -> tuple[tuple[int, str, str], ...]:
    """What says, in a network of its own, which names there are: descriptor, path and text of each file."""
    if policy.network == "open":
        return ()
    hosts, services, _ = view.NAME_SETTINGS
    return ((HOSTS_FD, hosts, hosts_file(policy.endpoints)), (NAME_SERVICES_FD, services, view.NAME_SERVICES))


def outside_of_the_system(paths: Sequence[str]) -> tuple[str, ...]:
    """Leave out what is shown anyway, or is below another path."""
    shown = (view.SYSTEM, *view.SETTING_FOLDERS)
    return tuple(path for path in without_inner([*shown, *paths]) if path not in shown)


def _memory(path: str, max_bytes: int) -> list[str]:
    return ["--perms", "1777", "--size", str(max_bytes), "--tmpfs", path]
