"""What of the machine a sandboxed process sees beside its own files: enough to run programs and to reach a network.

Everything that somebody may have put secrets into is left out: homes, /etc but for the files named here, /run, /var,
/opt, /mnt, /srv, /boot, /sys but for the description of the processors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from runner.errors import SandboxUnavailableError

SYSTEM: Final = "/usr"
"""Programs and libraries; readable by everybody on every system."""

SETTING_FILES: Final = (
    # how programs find libraries
    "/etc/ld.so.cache",
    # names and addresses
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    # certificates
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    # the rest of what standard libraries ask for
    "/etc/localtime",
    "/etc/mime.types",
)
"""Copied or allowed where they are there: a mount for each would take longer than all the rest."""

SETTING_FOLDERS: Final = (
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ca-certificates/extracted",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/crypto-policies",
)
"""The same for folders, which are bound: where commands are, and certificates, not the keys beside them."""

NAME_SETTINGS: Final = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
"""Those of them that say how names are looked up: in a network of its own, the first two are replaced and the last is
left out."""

NAME_SERVICES: Final = "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"
"""The text of an /etc/nsswitch.conf without name servers."""

USERS: Final = ("/etc/passwd", "/etc/group")
"""Replaced by a single user where mounts can do that."""

PROCESSORS: Final = "/sys/devices/system"
"""Number and shape of processors and memory, which numerical libraries ask for."""

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""All device nodes there are; no terminals, and no pseudo terminals."""

DEVICE_LINKS: Final = (
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
)

TERMINAL: Final = "/dev/tty"
TERMINALS: Final = "/dev/pts"
"""A process's own terminal, and pseudo terminals: only where there is a root of its own, which has its own ones."""

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the fixed place of POSIX shared memory
TEMPORARY: Final = "/tmp"  # noqa: S108 - what programs use that do not look at TMPDIR

HOST_NAME: Final = "benchmax"
USER_NAME: Final = "benchmax"


def passwd(uid: int, home: str) -> str:
    """The text of an /etc/passwd with one user."""
    return f"{USER_NAME}:x:{uid}:{uid}::{home}:/bin/sh\n"


def group(gid: int) -> str:
    """The text of an /etc/group with one group."""
    return f"{USER_NAME}:x:{gid}:\n"


ROOT_USERS: Final = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
ROOT_GROUPS: Final = """\
root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
mail:x:8:
www-data:x:33:
staff:x:50:
users:x:100:
nogroup:x:65534:
"""
"""The users and groups of a root of its own: those that programs take to be there, and none of the machine's."""


def interpreter(base: str) -> tuple[str, ...]:
    """What an installed Python consists of: its prefix, and in it what must be readable or it takes another library.

    Args:
        base: The interpreter, absolute and without symbolic links: `PREFIX/bin/pythonX.Y`.

    Raises:
        SandboxUnavailableError: its prefix is a folder that holds more than an interpreter.
    """
    program = Path(base)
    prefix = program.parent.parent
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - there may be none, which is no reason to fail
    if prefix == Path("/") or prefix == home or prefix in home.parents:
        raise SandboxUnavailableError(
            f"the interpreter {base} cannot be shown to a sandbox: {prefix} holds more than it.",
            hint="Use an interpreter with a folder of its own (--python PATH), or --sandbox off.",
        )
    libraries = sorted(prefix.glob("lib*/python3.*/os.py"))
    return (str(prefix), str(program), *map(str, libraries))
