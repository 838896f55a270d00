"""A policy with a root of its own, compiled: what is done in which order, and bubblewrap's command line."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.limits import Limits
from runner.sandbox.machine import Machine
from runner.sandbox.plan import compile_plan
from runner.sandbox.policy import SandboxPolicy
from runner.sandbox.private_root import FOLDERS, PrivateRoot, make_root
from runner.sandbox.unprivileged import (
    COUNT,
    FIRST,
    NOBODY,
    RANGE,
    RANGES_COUNT,
    RANGES_FIRST,
    unprivileged_range,
)
from runner.trials.policy import fit_root
from runner.trials.program import packed_program

MACHINE = Machine(
    architecture="x86_64",
    uid=1000,
    capabilities=frozenset(),
    uids=((0, 2**32 - 1),),
    landlock=7,
    bubblewrap="/usr/bin/bwrap",
    settings=("/etc/ld.so.cache", "/etc/hosts"),
    root_folders=(("/bin", "usr/bin"), ("/lib64", "")),
)
ROOT = replace(MACHINE, uid=0, capabilities=frozenset(range(41)))
POLICY = SandboxPolicy(level="namespaces", network="none", rlimits=(("NPROC", 100, 100),))


def fitted(machine: Machine, policy: SandboxPolicy = POLICY) -> SandboxPolicy:
    return fit_root(policy, folder=Path("/tmp/trial"), program=b"x", readable=("/opt/python",), machine=machine)


def steps(machine: Machine) -> list[dict[str, Any]]:
    return [dict(step) for step in compile_plan(fitted(machine), machine, ["/opt/python/bin/python"], cwd="/").steps]


def test_limits_are_in_force_before_the_user_namespace_is_made_and_mounts_after_it() -> None:
    files = ["memory-file"] * 6 + ["open-file"]
    rest = ["limit", "users", "reach", "layer", "no-new-privileges", "restrict", *files]
    assert [step["do"] for step in steps(ROOT)] == ["network", "give", *rest]
    assert [step["do"] for step in steps(MACHINE)] == ["network", *rest]


def test_root_becomes_a_range_of_users_that_nobody_is_and_anybody_else_stays_one() -> None:
    found = {step["do"]: step for step in steps(ROOT)}
    assert found["users"]["count"] == RANGE
    assert RANGES_FIRST <= found["users"]["uid"] <= RANGES_FIRST + RANGES_COUNT - RANGE
    assert found["give"] == {"do": "give", "path": "/tmp/trial", "uid": found["users"]["uid"]}
    assert next(step for step in steps(MACHINE) if step["do"] == "users") == {"do": "users", "uid": None, "count": 1}


def test_a_root_that_has_few_users_itself_gives_one() -> None:
    few = replace(ROOT, uids=((0, 65536),))
    assert unprivileged_range(few) is None
    found = fitted(few)
    assert (found.uid, found.root and found.root.users) == (NOBODY, 1)


def test_ranges_reach_neither_workers_users_nor_numbers_that_programs_misread() -> None:
    for draw in (lambda _: 0, lambda count: count - 1):
        first = unprivileged_range(ROOT, draw)
        assert first is not None
        assert FIRST + COUNT <= first < first + RANGE <= 2**31


def test_the_command_line_of_bubblewrap() -> None:
    argv = compile_plan(fitted(ROOT), ROOT, ["/opt/python/bin/python", "-I"], cwd="/", status=46).argv
    assert " ".join(argv) == (
        "/usr/bin/bwrap --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup "
        "--hostname benchmax --die-with-parent --new-session --cap-drop ALL "
        "--cap-add CAP_CHOWN --cap-add CAP_DAC_OVERRIDE --cap-add CAP_FOWNER --cap-add CAP_FSETID --cap-add CAP_KILL "
        "--cap-add CAP_SETGID --cap-add CAP_SETUID --cap-add CAP_NET_BIND_SERVICE "
        "--bind /tmp/trial/root / --symlink usr/bin /bin --ro-bind /lib64 /lib64 "
        "--perms 0644 --file 100 /etc/ld.so.cache --perms 0644 --file 43 /etc/hosts "
        "--perms 0644 --file 44 /etc/nsswitch.conf "
        "--perms 0644 --file 41 /etc/passwd --perms 0644 --file 42 /etc/group "
        "--ro-bind-try /etc/alternatives /etc/alternatives --ro-bind-try /etc/ssl/certs /etc/ssl/certs "
        "--ro-bind-try /etc/ca-certificates/extracted /etc/ca-certificates/extracted "
        "--ro-bind-try /etc/pki/tls/certs /etc/pki/tls/certs "
        "--ro-bind-try /etc/pki/ca-trust/extracted /etc/pki/ca-trust/extracted "
        "--ro-bind-try /etc/crypto-policies /etc/crypto-policies "
        "--ro-bind-try /sys/devices/system /sys/devices/system --proc /proc "
        "--dev-bind /dev/null /dev/null --dev-bind /dev/zero /dev/zero --dev-bind /dev/full /dev/full "
        "--dev-bind /dev/random /dev/random --dev-bind /dev/urandom /dev/urandom --dev-bind /dev/tty /dev/tty "
        "--symlink /proc/self/fd /dev/fd --symlink /proc/self/fd/0 /dev/stdin --symlink /proc/self/fd/1 /dev/stdout "
        "--symlink /proc/self/fd/2 /dev/stderr --symlink /dev/pts/ptmx /dev/ptmx "
        "--dev-bind /tmp/trial/terminals /dev/pts --perms 1777 --size 268435456 --tmpfs /dev/shm "
        "--ro-bind /opt/python /opt/python --ro-bind-data 47 /.benchmax/program "
        "--chdir / --seccomp 40 --json-status-fd 46 -- /opt/python/bin/python -I"
    )


def test_what_is_written_is_what_is_measured() -> None:
    root = PrivateRoot(folder="/tmp/trial", program=b"x")
    assert replace(POLICY, root=root, disk_bytes=1).watched == ("/tmp/trial/root", "/tmp/trial/layer")
    assert Limits().trial_disk_bytes is not None


def test_a_root_is_the_same_whatever_the_callers_mask_and_leaves_closed_folders_closed() -> None:
    with tempfile.TemporaryDirectory() as name:
        system, folder = Path(name) / "system", Path(name) / "made"
        for made in ("bin", "closed", "local/lib/python3.11/dist-packages", "local/share"):
            (system / made).mkdir(parents=True)
        (system / "closed").chmod(0o700)
        (system / "lib64").symlink_to("lib")
        folder.mkdir()
        make_root(folder, ["/home/me/python", "/usr/lib/python3"], system)
        layer = sorted(str(path.relative_to(folder / "layer")) for path in (folder / "layer").rglob("*"))
        assert layer == ["bin", "local", "local/lib", "local/lib/python3.11", "local/share"]
        modes = {name: (folder / "root" / name).stat().st_mode & 0o7777 for name in (*FOLDERS, "home/me")}
        assert modes == {**FOLDERS, "home/me": 0o755}


def test_the_packed_program_is_the_same_every_time() -> None:
    first = packed_program()
    packed_program.cache_clear()
    assert packed_program() == first
