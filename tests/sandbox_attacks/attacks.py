"""What an untrusted program tries: run inside of a sandbox, as a script, with the places of the victims as JSON.

Prints, as JSON, for each attack `can`, or `cannot` and the name of the error. Each runs in a process of its own, so
that one does not change what the next one finds.
"""

# plain calls of the operating system, one for each thing that is tried
# ruff: noqa: PTH101, PTH104, PTH108, PTH115, PTH123, PTH208, PTH211, SIM105

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
NUMBERS = {
    "x86_64": {"clone": 56, "ptrace": 101, "add_key": 248, "process_vm_readv": 310, "userfaultfd": 323, "bpf": 321},
    "aarch64": {"clone": 220, "ptrace": 117, "add_key": 217, "process_vm_readv": 270, "userfaultfd": 282, "bpf": 280},
}[os.uname().machine] | {"io_uring_setup": 425, "clone3": 435, "fsopen": 430}

libc = ctypes.CDLL(None, use_errno=True)
Context = dict[str, Any]


def call(name: str, *arguments: Any) -> int:
    result = int(libc.syscall(NUMBERS[name], *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def libc_call(function: Any, *arguments: Any) -> None:
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def read(path: str) -> None:
    with open(path, "rb") as file:
        assert file.read()


# -- other processes ------------------------------------------------------------------------------------------


def read_environment(context: Context) -> None:
    with open(f"/proc/{context['victim']}/environ", "rb") as file:
        assert b"victims-secret" in file.read()


def read_memory(context: Context) -> None:
    with open(f"/proc/{context['victim']}/mem", "rb"):
        pass


def copy_memory(context: Context) -> None:
    # an address that is nobody's: past the permission, the kernel complains of that
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("@PN", ctypes.addressof(buffer), 8)
    remote = struct.pack("@PN", 8, 8)
    try:
        call("process_vm_readv", context["victim"], local, 1, remote, 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


def trace(context: Context) -> None:
    call("ptrace", 0x4206, context["victim"], None, None)  # PTRACE_SEIZE: does not stop it


def see_descriptors(context: Context) -> None:
    assert os.readlink(f"/proc/{context['victim']}/fd/0")


def see(context: Context) -> None:
    read(f"/proc/{context['victim']}/cmdline")


def send_signal(context: Context) -> None:
    os.kill(context["victim"], 0)


# -- files ----------------------------------------------------------------------------------------------------


def read_key(context: Context) -> None:
    read(f"{context['home']}/.ssh/id_ed25519")


def list_home(context: Context) -> None:
    assert os.listdir(context["home"])


def read_through_a_link(context: Context) -> None:
    link = f"{context['private']}/work/link"
    os.symlink(f"{context['home']}/.ssh/id_ed25519", link)
    try:
        read(link)
    finally:
        os.unlink(link)


def read_through_root_of_process(context: Context) -> None:
    read(f"/proc/{context['victim']}/root{context['home']}/.ssh/id_ed25519")


def link_into_own_folder(context: Context) -> None:
    link = f"{context['private']}/work/hard"
    os.link(f"{context['home']}/.ssh/id_ed25519", link)
    os.unlink(link)


def write_outside(context: Context) -> None:
    with open(f"{context['home']}/planted", "w"):
        pass
    os.unlink(f"{context['home']}/planted")


def empty_file(context: Context) -> None:
    os.truncate(f"{context['home']}/notes", 1)


def rename_file(context: Context) -> None:
    os.rename(f"{context['home']}/notes", f"{context['home']}/renamed")
    os.rename(f"{context['home']}/renamed", f"{context['home']}/notes")


def change_installed_package(context: Context) -> None:
    with open(f"{context['installed']}/package.py", "a") as file:
        file.write("# planted\n")


def add_to_installed_packages(context: Context) -> None:
    with open(f"{context['installed']}/planted.pth", "w"):
        pass
    os.unlink(f"{context['installed']}/planted.pth")


def change_mode(context: Context) -> None:
    os.chmod(f"{context['home']}/notes", 0o600)


def read_settings(context: Context) -> None:
    read("/etc/hostname")


def leave_shared_memory(context: Context) -> None:
    with open(f"/dev/shm/{context['name']}", "w"):
        pass


# -- the kernel -----------------------------------------------------------------------------------------------


def user_namespace(context: Context) -> None:
    libc_call(libc.unshare, CLONE_NEWUSER)


def clone_user_namespace(context: Context) -> None:
    pid = call("clone", CLONE_NEWUSER | signal.SIGCHLD, None, None, None, None)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def clone3(context: Context) -> None:
    # flags, seven fields more; no flags, so that all it does is to fork
    arguments = struct.pack("=8Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    pid = call("clone3", arguments, len(arguments))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def mount(context: Context) -> None:
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 and ctypes.get_errno() != errno.EPERM:
        raise OSError(ctypes.get_errno(), "")
    libc_call(libc.mount, b"none", f"{context['private']}/tmp".encode(), b"tmpfs", ctypes.c_ulong(0), None)


def new_mount_interface(context: Context) -> None:
    libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    os.close(call("fsopen", b"tmpfs", 0))


def io_uring(context: Context) -> None:
    os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(120)))


def keyring(context: Context) -> None:
    call("add_key", b"user", b"benchmax-test", b"x", ctypes.c_size_t(1), -2)  # the process's own keyring


def hypervisor(context: Context) -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


def push_into_terminal(context: Context) -> None:
    try:
        os.setsid()
    except PermissionError:
        pass
    fcntl.ioctl(context["terminal"], 0x540E, 0)  # TIOCSCTTY
    fcntl.ioctl(context["terminal"], 0x5412, b"x")  # TIOCSTI


def set_user(context: Context) -> None:
    # whether who it runs as owns the program, as only root does
    pid = os.posix_spawn(context["set_uid"], ["test", "-O", context["set_uid"]], {})
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise PermissionError(errno.EPERM, "")


# -- sockets --------------------------------------------------------------------------------------------------


def abstract_socket(context: Context) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{context['name']}")


def socket_file(context: Context) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(context["socket"])


def loopback(context: Context) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", context["port"]))


# -- what has to go on working --------------------------------------------------------------------------------


def use_own_folder(context: Context) -> None:
    with open(f"{context['private']}/work/own", "w") as file:
        file.write("x")
    os.rename(f"{context['private']}/work/own", f"{context['private']}/home/own")
    os.truncate(f"{context['private']}/home/own", 0)
    os.unlink(f"{context['private']}/home/own")


def use_devices(context: Context) -> None:
    with open("/dev/null", "w") as sink, open("/dev/urandom", "rb", buffering=0) as source:
        sink.write(str(source.read(1)))


def start_programs(context: Context) -> None:
    assert os.system("sh -c 'ls /usr >/dev/null && exit 0'") == 0


def socket_pair(context: Context) -> None:
    for end in socket.socketpair():
        end.close()


def look_up_names(context: Context) -> None:
    assert socket.getaddrinfo("localhost", 80)


def map_memory(context: Context) -> None:
    mmap.mmap(-1, 4096).close()
    os.close(os.memfd_create("x"))


ATTACKS: dict[str, Callable[[Context], None]] = {
    "read the environment of another process": read_environment,
    "open the memory of another process": read_memory,
    "copy memory of another process": copy_memory,
    "trace another process": trace,
    "see what another process has open": see_descriptors,
    "see that another process is there": see,
    "signal another process": send_signal,
    "read a key of the user": read_key,
    "list the user's home": list_home,
    "read a file through a symbolic link": read_through_a_link,
    "read a file through the root of another process": read_through_root_of_process,
    "link a file into its own folder": link_into_own_folder,
    "write outside of its folder": write_outside,
    "empty a file of the user": empty_file,
    "rename a file of the user": rename_file,
    "change an installed package": change_installed_package,
    "add to the installed packages": add_to_installed_packages,
    "change the mode of a file": change_mode,
    "read settings of the machine": read_settings,
    "leave something in shared memory": leave_shared_memory,
    "make a user namespace": user_namespace,
    "make a user namespace by clone": clone_user_namespace,
    "use clone3": clone3,
    "mount something": mount,
    "mount by the new interface": new_mount_interface,
    "use io_uring": io_uring,
    "add a key to a keyring": keyring,
    "reach the hypervisor": hypervisor,
    "push input into a terminal": push_into_terminal,
    "gain a user by a set-uid program": set_user,
    "connect to an abstract socket": abstract_socket,
    "connect to a socket file": socket_file,
    "connect to loopback": loopback,
}

NEEDS: dict[str, Callable[[Context], None]] = {
    "use its own folder": use_own_folder,
    "use device files": use_devices,
    "start programs": start_programs,
    "make socket pairs": socket_pair,
    "look up names": look_up_names,
    "map memory": map_memory,
}


def attempt(action: Callable[[Context], None], context: Context) -> str:
    """Run an attack in a process of its own, and say how it went."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            action(context)
            text = "can"
        except OSError as error:
            text = f"cannot {errno.errorcode.get(error.errno or 0, error.errno)}"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as report:
        text = report.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return text if status == 0 else f"ended with {status}"


def main() -> None:
    """Run all, and print what became of each."""
    context = json.loads(sys.argv[1])
    print(json.dumps({name: attempt(action, context) for name, action in {**ATTACKS, **NEEDS}.items()}))


if __name__ == "__main__":
    main()
