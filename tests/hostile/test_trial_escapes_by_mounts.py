"""Attack: root of a trial sandbox mounts, makes namespaces, devices and roots, or changes the kernel's settings."""

from __future__ import annotations

import pytest

from tests.trials.talking import Talk


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount -o remount,rw /.benchmax/program",
        "mount --bind /usr /mnt",
        "umount /usr",
        "umount -l /proc",
        "unshare -U true",
        "unshare -m true",
        "unshare -n true",
        "chroot / true",
        "mknod /dev/disk b 8 0 && cat /dev/disk",
        "mknod /dev/memory c 1 1 && cat /dev/memory",
        "echo '|/bin/sh' > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 0 0 4294967295 > /proc/self/uid_map",
        "echo -1000 > /proc/self/oom_score_adj",
        "hostname other",
        "dmesg",
        "echo x > /.benchmax/program",
        "rm -f /.benchmax/program",
        "echo x > /sys/devices/system/cpu/cpu0/online",
        "ls /sys/fs/cgroup/memory",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(16, 2, 0, 0) + 1 == 0)'",
        "python3 -c 'import os; os.setns(os.open(\"/proc/1/ns/mnt\", 0))' || python3 -c 'import os; os.setns(3)'",
        "nice -n -5 true 2>&1 | grep -c cannot | grep 0",
        "ulimit -H -n 1000000",
    ],
)
def test_root_inside_is_not_root_outside(command: str, talk: Talk) -> None:
    assert talk.run(command).exit != 0


def test_it_has_the_capabilities_that_were_meant_and_can_gain_none(talk: Talk) -> None:
    status = talk.said("grep -E '^(Cap(Eff|Prm)|NoNewPrivs|Seccomp):' /proc/self/status").split()
    # chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_bind_service
    assert status == ["CapPrm:", "00000000000004fb", "CapEff:", "00000000000004fb", "NoNewPrivs:", "1", "Seccomp:", "2"]
    assert talk.run("setcap cap_sys_admin+ep /bin/true || python3 -c 'import os; "
                    "os.setxattr(\"/tmp\", \"security.capability\", b\"\\1\" * 20)'").exit != 0  # fmt: skip
