"""Carries out the steps that confine a process, in that process, and then becomes the command.

Standard library only. The supervisor calls `carry_out` in the child it has forked; as a program, run by path with
`-I -S` and the number of a descriptor, it reads one JSON object from there: `steps`, `argv`, `env` and `cwd`.

Steps come compiled: numbers, paths and bytes, in the order in which they take effect. Nothing is decided here, and a
step that cannot be carried out ends the launch; its text is `cannot <verb> <object>: <reason>`.
"""

from __future__ import annotations

import binascii
import ctypes
import errno
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # not for real: the supervisor loads this before every start, and the names alone take longer than all else here
    import socket
    from collections.abc import Callable
    from typing import Any

PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME = 1, 2, 4, 8, 1024
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
LANDLOCK_RULE_PATH_BENEATH = 1

RTM_NEWLINK, RTM_NEWADDR = 16, 20
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 1, 4, 0x400
IFA_ADDRESS, IFA_LOCAL, IFA_F_NODAD, RT_SCOPE_HOST = 1, 2, 2, 254
IFF_UP = 1
LOOPBACK = 1
"""Number of the loopback device, which is the first in every network namespace."""

BACKLOG = 4096
"""Connections that may wait until the caller takes them; the kernel may allow fewer."""

EXIT_FAILED = 125
"""Exit code of the program when a step failed; its text is on standard error."""

_libc = ctypes.CDLL(None, use_errno=True)


class StepError(Exception):
    """A step that could not be carried out."""


def carry_out(steps: list[dict[str, Any]]) -> None:
    """Carry out steps in their order.

    Raises:
        StepError: one of them failed; those before it are in force.
    """
    for step in steps:
        arguments = {**step}
        action = _ACTIONS[arguments.pop("do")]
        try:
            action(**arguments)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise StepError(f"cannot {_describe(step)}{where}: {os.strerror(error.errno or 0)}") from error
        except ValueError as error:
            # how the resource module says that a limit is none
            raise StepError(f"cannot {_describe(step)}: {error}") from error


def _describe(step: dict[str, Any]) -> str:
    return {
        "network": "make a network namespace",
        "overlay": f"mount an overlay of {step.get('lower')}",
        "users": "make a user namespace",
        "layer": "mount a layer over the system",
        "mounts": "make a mount namespace",
        "show": f"show paths below {step.get('folder')}",
        "proc": "mount a /proc that hides other users' processes",
        "tmpfs": f"mount a private folder at {step.get('path')}",
        "give": f"give {step.get('path')} to user {step.get('uid')}",
        "become": f"become user {step.get('uid')}",
        "reach": "reach what the command needs",
        "drop-capabilities": "drop capabilities",
        "limit": f"set the limit {step.get('name')}",
        "no-new-privileges": "give up new privileges",
        "restrict": "apply Landlock rules",
        "memory-file": "make a memory file",
        "open-file": "open a file",
        "filter": "apply the system call filter",
    }[step["do"]]


def _check(result: int, name: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def _prctl(option: int, first: int, second: Any = 0) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)))


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), target)


# -- a network of its own -------------------------------------------------------------------------------------


def _network(user_namespace: bool, addresses: list[str], listeners: list[list[Any]], descriptor: int | None) -> None:
    """Enter an empty network, listen in it, and send the listening sockets to whoever is to take the connections."""
    import socket

    if user_namespace:
        _enter_user_namespace(CLONE_NEWNET)
    else:
        _check(_libc.unshare(CLONE_NEWNET))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) as link:
        _ask(link, RTM_NEWLINK, struct.pack("=BxHiII", 0, 0, LOOPBACK, IFF_UP, IFF_UP), "loopback")
        for address in addresses:
            _add_address(link, address)
    made = []
    try:
        for address, port in listeners:
            made.append(_listen(address, port))
        if descriptor is not None:
            with socket.socket(fileno=descriptor) as caller:
                if made:
                    socket.send_fds(caller, [b"\0"], [listener.fileno() for listener in made])
    finally:
        for listener in made:
            listener.close()


def _enter_user_namespace(more: int, inner: int | None = None) -> None:
    uid, gid = os.geteuid(), os.getegid()
    inner_uid, inner_gid = (uid, gid) if inner is None else (inner, inner)
    # who has become another user may not write its own maps otherwise
    _prctl(PR_SET_DUMPABLE, 1)
    _check(_libc.unshare(CLONE_NEWUSER | more))
    _write_file("/proc/self/setgroups", "deny")
    _write_file("/proc/self/uid_map", f"{inner_uid} {uid} 1")
    _write_file("/proc/self/gid_map", f"{inner_gid} {gid} 1")


def _write_file(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - no pathlib in a process that is to start fast
        file.write(text)


def _add_address(link: socket.socket, address: str) -> None:
    import socket

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    data = socket.inet_pton(family, address)
    # at once, and without asking other machines whether it is theirs: there are none
    body = struct.pack("=BBBBi", family, len(data) * 8, IFA_F_NODAD, RT_SCOPE_HOST, LOOPBACK)
    for kind in (IFA_LOCAL, IFA_ADDRESS):
        body += struct.pack("=HH", 4 + len(data), kind) + data
    _ask(link, RTM_NEWADDR, body, address)


def _ask(link: socket.socket, kind: int, body: bytes, name: str) -> None:
    """Have the kernel change something of the network, and wait for its answer."""
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
    link.sendto(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body, (0, 0))
    number = -struct.unpack_from("=i", link.recv(4096), 16)[0]
    if number:
        raise OSError(number, os.strerror(number), name)


def _listen(address: str, port: int) -> socket.socket:
    import socket

    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{address} port {port}") from error
    return listener


# -- mounts, for a caller that is not root --------------------------------------------------------------------


def _overlay(lower: str, upper: str, work: str, target: str) -> None:
    """Show a folder at a place where it can be written to without being changed, in a user namespace for that."""
    _enter_user_namespace(CLONE_NEWNS)
    _mount_overlay(lower, upper, work, target)


def _mount_overlay(lower: str, upper: str, work: str, target: str) -> None:
    handles = [os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (lower, upper, work)]
    try:
        # not by their names, which may hold what separates options
        lower, upper, work = (f"/proc/self/fd/{handle}" for handle in handles)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        _mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)
    finally:
        for handle in handles:
            os.close(handle)


# -- a root of its own ----------------------------------------------------------------------------------------


def _users(uid: int | None, count: int) -> None:
    """Become root of a user namespace, of `count` users from `uid` on outside, or of the caller's own alone."""
    if count == 1:
        if uid is not None:
            _become(uid)
        _enter_user_namespace(CLONE_NEWNS, inner=0)
    else:
        _enter_range(uid or 0, count)
    # what happens here must not reach the machine, nor what happens there this
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    # the root that it now is, and no user of the machine
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _enter_range(first: int, count: int) -> None:
    # who has become somebody else may not map users that are not its own: a process that has not does it
    process, made, mapped = os.getpid(), os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
    mapper = os.fork()
    if mapper == 0:
        try:
            os.close(made[1])
            if os.read(made[0], 1):
                _write_file(f"/proc/{process}/uid_map", f"0 {first} {count}")
                _write_file(f"/proc/{process}/gid_map", f"0 {first} {count}")
                os.write(mapped[1], b"\0")
        finally:
            os._exit(0)
    try:
        os.close(mapped[1])
        # before, so that all of its processes are counted as that user's, which nobody else is
        _become(first)
        _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
        os.write(made[1], b"\0")
        if not os.read(mapped[0], 1):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), "uid map")
    finally:
        for descriptor in (*made, mapped[0]):
            os.close(descriptor)
        os.waitpid(mapper, 0)


def _layer(lower: str, upper: str, work: str, target: str, terminals: str) -> None:
    """Show the system where it can be written to without being changed, and make pseudo terminals."""
    _mount_overlay(lower, upper, work, target)
    _mount("devpts", terminals, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")


# -- mounts, for a caller that is root ------------------------------------------------------------------------


def _mounts() -> None:
    _check(_libc.unshare(CLONE_NEWNS))
    # what happens here must not reach the machine
    _mount(None, "/", None, MS_REC | MS_PRIVATE)


def _show(folder: str, paths: list[list[Any]]) -> None:
    """Put an open, empty folder over a closed one, and into it what is needed, read-only unless it says otherwise."""
    # opened before they are covered
    handles = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in paths]
    before = os.umask(0o022)
    try:
        _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
        for handle, (path, writable) in zip(handles, paths, strict=True):
            _mount_point(path, stat.S_ISDIR(os.fstat(handle).st_mode))
            _mount(f"/proc/self/fd/{handle}", path, None, MS_BIND)
            # flags of the file system that may not be taken away have to be given again
            kept = os.statvfs(path).f_flag & (MS_NODEV | MS_NOEXEC | MS_NOATIME)
            readonly = 0 if writable else MS_RDONLY
            _mount(None, path, None, MS_REMOUNT | MS_BIND | MS_NOSUID | kept | readonly)
        _mount(None, folder, None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_RDONLY)
    finally:
        os.umask(before)
        for handle in handles:
            os.close(handle)


def _mount_point(path: str, folder: bool) -> None:
    if folder:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - no pathlib in a process that is to start fast
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as above
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _proc() -> None:
    _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=invisible")


def _tmpfs(path: str, max_bytes: int) -> None:
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, f"mode=1777,size={max_bytes}")


# -- who it is ------------------------------------------------------------------------------------------------


def _give(path: str, uid: int) -> None:
    """Make a fresh folder and the folders in it belong to somebody else."""
    for folder, _, _ in os.walk(path):
        os.chown(folder, uid, uid)


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _reach(paths: list[str]) -> None:
    """Refuse to go on where the command would find only half of what it is made of."""
    for path in paths:
        if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):  # noqa: PTH112 - as above
            missing = not os.path.lexists(path)
            raise OSError(errno.ENOENT if missing else errno.EACCES, "", path)


def _drop_capabilities() -> None:
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, ctypes.c_ulong(0))
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)))


# -- what it may do -------------------------------------------------------------------------------------------


def _limit(name: str, soft: int, hard: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _no_new_privileges() -> None:
    _prctl(PR_SET_NO_NEW_PRIVS, 1, ctypes.c_ulong(0))


def _restrict(handled: int, scoped: int, rules: list[list[Any]], file_rights: int) -> None:
    # an older kernel takes the shorter form, as long as nothing beyond it is asked for
    attributes = struct.pack("=QQQ", handled, 0, scoped) if scoped else struct.pack("=Q", handled)
    ruleset = _check(_libc.syscall(LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0))
    try:
        for path, rights, needed in rules:
            _allow(ruleset, path, rights, file_rights, needed)
        _check(_libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int, file_rights: int, needed: bool) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        if needed:
            raise
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= file_rights
        rule = struct.pack("=Qi", rights, handle)
        _check(_libc.syscall(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0), path)
    finally:
        os.close(handle)


def _memory_file(descriptor: int, content: str) -> None:
    data = binascii.a2b_base64(content)
    handle = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    os.write(handle, data)
    os.lseek(handle, 0, os.SEEK_SET)
    os.dup2(handle, descriptor, inheritable=True)
    os.close(handle)


def _open_file(descriptor: int, path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(handle, descriptor, inheritable=True)
    os.close(handle)


def _filter(program: str) -> None:
    data = binascii.a2b_base64(program)
    buffer = ctypes.create_string_buffer(data, len(data))
    # struct sock_fprog: number of instructions of eight bytes, and where they are
    pointer = struct.pack("@HP", len(data) // 8, ctypes.addressof(buffer))
    _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(pointer))


_ACTIONS: dict[str, Callable[..., None]] = {
    "network": _network,
    "overlay": _overlay,
    "users": _users,
    "layer": _layer,
    "mounts": _mounts,
    "show": _show,
    "proc": _proc,
    "tmpfs": _tmpfs,
    "give": _give,
    "become": _become,
    "reach": _reach,
    "drop-capabilities": _drop_capabilities,
    "limit": _limit,
    "no-new-privileges": _no_new_privileges,
    "restrict": _restrict,
    "memory-file": _memory_file,
    "open-file": _open_file,
    "filter": _filter,
}


def main() -> int:
    """Read what to do from a descriptor, do it, and become the command."""
    import json

    with os.fdopen(int(sys.argv[1]), "rb") as source:
        order = json.loads(source.read())
    try:
        carry_out(order["steps"])
        os.umask(order["umask"])
        os.chdir(order["cwd"])
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell is wanted
    except (StepError, OSError) as error:
        print(f"launcher: {error}", file=sys.stderr)  # noqa: T201 - how a program says what went wrong
        return EXIT_FAILED


if __name__ == "__main__":
    raise SystemExit(main())
