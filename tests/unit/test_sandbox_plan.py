"""Policies compiled for a machine, word for word."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from runner.errors import SandboxUnavailableError
from runner.sandbox import seccomp
from runner.sandbox.endpoints import Endpoint
from runner.sandbox.landlock import READ, WRITE, Right
from runner.sandbox.machine import Machine
from runner.sandbox.plan import Plan, compile_plan, mechanisms
from runner.sandbox.policy import SandboxPolicy

MACHINE = Machine(
    architecture="x86_64",
    uid=1000,
    capabilities=frozenset(),
    uids=((0, 2**32 - 1),),
    landlock=7,
    bubblewrap="/usr/bin/bwrap",
    settings=("/etc/ld.so.cache", "/etc/hosts"),
    root_folders=(("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "")),
)
ROOT = replace(MACHINE, uid=0, capabilities=frozenset(range(41)))
POLICY = SandboxPolicy(
    level="namespaces",
    readable=("/cache/venv", "/opt/python", "/opt/python/lib/python3.12/os.py", "/usr/lib/python3.12/os.py"),
    private="/tmp/worker",
    data="/tmp/data",
)
ALONE = replace(POLICY, network="model-only", endpoints=(Endpoint("api.example", 443), Endpoint("10.0.0.7", 5432)))
ARGV = ("/cache/venv/bin/python", "-s", "boot.py")


def compiled(policy: SandboxPolicy, machine: Machine = MACHINE, **options: Any) -> Plan:
    return compile_plan(policy, machine, ARGV, cwd="/tmp/worker/work", **options)


def done(plan: Plan) -> list[object]:
    return [step["do"] for step in plan.steps]


# -- namespaces -----------------------------------------------------------------------------------------------


def test_the_command_line_of_bubblewrap() -> None:
    assert " ".join(compiled(POLICY).argv) == (
        "/usr/bin/bwrap --unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup "
        "--hostname benchmax --die-with-parent --new-session --cap-drop ALL "
        "--ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --ro-bind /lib64 /lib64 "
        "--file 100 /etc/ld.so.cache --file 101 /etc/hosts --file 41 /etc/passwd --file 42 /etc/group "
        "--ro-bind-try /etc/alternatives /etc/alternatives --ro-bind-try /etc/ssl/certs /etc/ssl/certs "
        "--ro-bind-try /etc/ca-certificates/extracted /etc/ca-certificates/extracted "
        "--ro-bind-try /etc/pki/tls/certs /etc/pki/tls/certs "
        "--ro-bind-try /etc/pki/ca-trust/extracted /etc/pki/ca-trust/extracted "
        "--ro-bind-try /etc/crypto-policies /etc/crypto-policies "
        "--ro-bind-try /sys/devices/system /sys/devices/system --proc /proc "
        "--dev-bind /dev/null /dev/null --dev-bind /dev/zero /dev/zero --dev-bind /dev/full /dev/full "
        "--dev-bind /dev/random /dev/random --dev-bind /dev/urandom /dev/urandom "
        "--symlink /proc/self/fd /dev/fd --symlink /proc/self/fd/0 /dev/stdin --symlink /proc/self/fd/1 /dev/stdout "
        "--symlink /proc/self/fd/2 /dev/stderr "
        "--perms 1777 --size 268435456 --tmpfs /dev/shm --perms 1777 --size 268435456 --tmpfs /tmp "
        "--ro-bind /cache/venv /cache/venv --ro-bind /opt/python /opt/python "
        "--bind /tmp/worker /tmp/worker --bind /tmp/data /tmp/data "
        "--remount-ro / --chdir /tmp/worker/work --seccomp 40 -- /cache/venv/bin/python -s boot.py"
    )


def test_in_a_network_of_its_own_names_come_from_a_file_and_from_nowhere_else() -> None:
    machine = replace(MACHINE, settings=("/etc/ld.so.cache", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf"))
    plan = compiled(ALONE, machine)
    words = " ".join(plan.argv)
    assert "--file 100 /etc/ld.so.cache --file 43 /etc/hosts --file 44 /etc/nsswitch.conf --file 41" in words
    assert "resolv.conf" not in words
    files = {step["descriptor"]: step["content"] for step in plan.steps if step["do"] == "memory-file"}
    assert b"api.example" in base64.b64decode(str(files[43]))
    assert b"hosts: files" in base64.b64decode(str(files[44]))
    # it would be another one, in which nothing listens
    assert "--unshare-net" not in plan.argv


def test_who_may_makes_the_network_before_becoming_another_user() -> None:
    plan = compiled(replace(ALONE, uid=5), ROOT, listeners=45)
    assert done(plan)[:5] == ["network", "give", "become", "reach", "drop-capabilities"]
    assert plan.steps[0] == {
        "do": "network",
        "user_namespace": False,
        "addresses": ["10.0.0.7"],
        "listeners": [["127.64.0.1", 443], ["10.0.0.7", 5432]],
        "descriptor": 45,
    }


def test_who_may_not_makes_the_network_in_a_user_namespace_before_giving_up_what_is_had_there() -> None:
    plan = compiled(replace(ALONE, network="none", endpoints=()))
    assert done(plan)[:2] == ["network", "drop-capabilities"]
    assert plan.steps[0] == {
        "do": "network",
        "user_namespace": True,
        "addresses": [],
        "listeners": [],
        "descriptor": None,
    }
    # such as root in a container that has no power over networks
    container = replace(ROOT, capabilities=ROOT.capabilities - {12})
    assert done(compiled(replace(ALONE, uid=5), container))[:4] == ["give", "become", "reach", "network"]


def test_the_machines_own_network_takes_no_step() -> None:
    assert "network" not in done(compiled(POLICY, listeners=45))


def test_the_status_goes_to_a_descriptor_when_somebody_listens() -> None:
    words = list(compiled(POLICY, status=43).argv)
    assert words[words.index("--json-status-fd") + 1] == "43"
    assert words.index("--json-status-fd") < words.index("--")


def test_what_comes_before_bubblewrap() -> None:
    plan = compiled(replace(POLICY, rlimits=(("CORE", 0, 0), ("NPROC", 64, 64))))
    assert plan.relayed
    assert done(plan) == [
        "drop-capabilities", "limit", "limit", "no-new-privileges", "restrict",
        "memory-file", "memory-file", "memory-file", "open-file", "open-file",
    ]  # fmt: skip
    assert plan.steps[2] == {"do": "limit", "name": "NPROC", "soft": 64, "hard": 64}
    files = {step["descriptor"]: step["content"] for step in plan.steps if step["do"] == "memory-file"}
    assert base64.b64decode(str(files[40])) == seccomp.program("x86_64", own_view=True)
    assert base64.b64decode(str(files[41])) == b"benchmax:x:1000:1000::/tmp/worker/home:/bin/sh\n"
    assert base64.b64decode(str(files[42])) == b"benchmax:x:1000:\n"


def test_who_stays_root_keeps_what_bubblewrap_needs_to_map_root_and_drops_the_rest_there() -> None:
    assert "drop-capabilities" in done(compiled(replace(POLICY, uid=1_900_000_001), ROOT))
    stays_root = compiled(POLICY, ROOT)
    assert "drop-capabilities" not in done(stays_root)
    assert "--cap-drop ALL" in " ".join(stays_root.argv)
    assert "drop-capabilities" in done(compiled(replace(POLICY, level="landlock"), ROOT))


def test_shared_folders_are_written_under_their_own_names() -> None:
    words = " ".join(compiled(replace(POLICY, data=None, shared=("/cache/uv", "/tmp/worker"))).argv)
    assert "--bind /tmp/worker /tmp/worker --bind /cache/uv /cache/uv --remount-ro" in words


def test_landlock_before_bubblewrap_has_no_file_rights_with_which_it_could_not_mount() -> None:
    restrict = next(step for step in compiled(POLICY).steps if step["do"] == "restrict")
    assert restrict == {"do": "restrict", "handled": 0, "scoped": 3, "rules": [], "file_rights": 0}
    assert "restrict" not in done(compiled(POLICY, replace(MACHINE, landlock=5)))


def test_without_bubblewrap_it_is_refused_with_the_package_to_install() -> None:
    with pytest.raises(SandboxUnavailableError, match=r"bwrap is not installed\. Install it .*package bubblewrap"):
        compiled(POLICY, replace(MACHINE, bubblewrap=None))


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
def test_without_a_system_call_filter_it_is_refused(level: Any) -> None:
    with pytest.raises(SandboxUnavailableError, match="their numbers on s390x are not known"):
        compiled(replace(POLICY, level=level), replace(MACHINE, architecture="s390x"))


# -- landlock -------------------------------------------------------------------------------------------------


def rules(plan: Plan) -> dict[str, Right]:
    step: Any = next(step for step in plan.steps if step["do"] == "restrict")
    return {path: Right(rights) for path, rights, _ in step["rules"]}


def test_what_landlock_applies_last_is_the_filter() -> None:
    plan = compiled(replace(POLICY, level="landlock"))
    assert plan.argv == ARGV
    assert not plan.relayed
    assert done(plan) == ["drop-capabilities", "limit", "no-new-privileges", "restrict", "filter"]
    program = base64.b64decode(str(plan.steps[-1]["program"]))
    assert program == seccomp.program("x86_64", own_view=False)


def test_only_the_own_folder_and_devices_may_be_written() -> None:
    found = rules(compiled(replace(POLICY, level="landlock")))
    may_write = {path for path, rights in found.items() if rights & ~READ}
    assert may_write == {
        "/tmp/worker",
        "/tmp/data",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
    }
    assert found["/tmp/worker"] == WRITE
    assert found["/cache/venv"] == found["/opt/python"] == found["/usr"] == READ
    assert "/" not in found
    assert "/etc" not in found
    assert "/tmp" not in found
    assert "/dev/shm" not in found


def test_what_need_not_be_there_may_be_missing() -> None:
    step: Any = next(step for step in compiled(replace(POLICY, level="landlock")).steps if step["do"] == "restrict")
    needed = {path for path, _, must in step["rules"] if must}
    assert {"/usr", "/proc", "/cache/venv", "/opt/python", "/tmp/worker", "/dev/null"} <= needed
    assert not {path for path in needed if path.startswith("/etc/")}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_kernel_with_too_little_landlock_is_refused(version: int) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"version 3 \(Linux 6.2\) is needed"):
        compiled(replace(POLICY, level="landlock"), replace(MACHINE, landlock=version))


# -- off ------------------------------------------------------------------------------------------------------


def test_at_off_there_are_limits_and_no_new_privileges() -> None:
    plan = compiled(replace(POLICY, level="off"))
    assert plan == Plan(
        steps=({"do": "limit", "name": "CORE", "soft": 1, "hard": 1}, {"do": "no-new-privileges"}), argv=ARGV
    )
    assert done(compiled(SandboxPolicy(rlimits=(), no_new_privileges=False))) == []


@pytest.mark.parametrize("level", ["landlock", "namespaces"])
def test_new_privileges_cannot_be_kept_in_a_sandbox(level: Any) -> None:
    assert "no-new-privileges" in done(compiled(replace(POLICY, level=level, no_new_privileges=False)))


# -- a caller that is root ------------------------------------------------------------------------------------


def test_root_becomes_another_user_before_bubblewrap_starts() -> None:
    plan = compiled(replace(POLICY, uid=1_900_000_001), ROOT)
    assert done(plan)[:4] == ["give", "become", "reach", "drop-capabilities"]
    assert plan.steps[0] == {"do": "give", "path": "/tmp/worker", "uid": 1_900_000_001}
    assert plan.steps[2] == {"do": "reach", "paths": [*POLICY.readable, "/tmp/worker", "/tmp/data"]}


def test_what_another_user_cannot_reach_is_shown_in_mounts_of_its_own() -> None:
    closed = {"/home": ("/home/me/cache/venv", "/home/me/cache/venv/lib", "/home/me/worker")}
    policy = replace(POLICY, uid=5, private="/home/me/worker")
    plan = compiled(policy, ROOT, closed=closed)
    assert done(plan)[:5] == ["give", "mounts", "show", "become", "reach"]
    assert plan.steps[2] == {
        "do": "show",
        "folder": "/home",
        "paths": [["/home/me/cache/venv", False], ["/home/me/worker", True]],
    }


def test_at_landlock_root_gets_shared_memory_and_processes_of_its_own() -> None:
    plan = compiled(replace(POLICY, level="landlock", uid=5), ROOT)
    assert done(plan)[:5] == ["give", "mounts", "tmpfs", "proc", "become"]
    assert "/dev/shm" in rules(plan)


def test_where_root_may_not_mount_it_goes_on_as_long_as_nothing_is_closed() -> None:
    bare = replace(ROOT, capabilities=frozenset({0, 6, 7}))
    plan = compiled(replace(POLICY, level="landlock", uid=5), bare)
    assert done(plan)[:3] == ["give", "become", "reach"]
    assert "/dev/shm" not in rules(plan)
    with pytest.raises(SandboxUnavailableError, match="user 5 cannot enter /closed, and root may not mount here"):
        compiled(replace(POLICY, uid=5), bare, closed={"/closed": ("/closed/python",)})


# -- what reports say -----------------------------------------------------------------------------------------


def test_each_mechanism_in_force_is_named() -> None:
    assert mechanisms(replace(POLICY, level="off"), MACHINE) == POLICY.mechanisms()
    landlock = mechanisms(replace(POLICY, level="landlock"), MACHINE)
    assert {"landlock version 7", "landlock truncate", "no capabilities", "system call filter"} <= set(landlock)
    assert "unprivileged user" not in landlock
    namespaces = mechanisms(POLICY, ROOT)
    assert {"bubblewrap", "user namespace", "cgroup namespace", "landlock scope signal"} <= set(namespaces)
    assert "unprivileged user" in namespaces
    assert "landlock truncate" not in namespaces
    assert "network namespace" not in namespaces
    assert "network namespace" in mechanisms(ALONE, MACHINE)
