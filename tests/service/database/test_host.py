"""A SQLite database stays on one host, and off file systems of the network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.errors import DatabaseError
from runner.service.database import host
from runner.service.database.database import Database, upgrade
from runner.service.database.host import HostLock, file_system_of, refuse_network_file_system

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /srv rw shared:2 - nfs4 server:/export rw
31 30 0:41 / /srv/local rw - xfs /dev/sdb rw
32 22 0:42 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:43 / /home/me/remote rw - fuse.sshfs me@host: rw
34 22 0:44 / /twice rw - nfs server:/old rw
35 22 0:45 / /twice rw - tmpfs tmpfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/service.db", "ext4"),
        ("/srv/service.db", "nfs4"),
        ("/srv/local/service.db", "xfs"),
        ("/srv/localhost/service.db", "nfs4"),
        ("/mnt/with space/service.db", "cifs"),
        ("/home/me/remote/x/service.db", "fuse.sshfs"),
        ("/home/me/service.db", "ext4"),
        ("/twice/service.db", "tmpfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", sorted(host.NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused_by_name(kind: str) -> None:
    with pytest.raises(DatabaseError, match=rf"network file system \({kind}\)\. Put it on a local disk"):
        refuse_network_file_system(Path("/data/x.db"), mounts=f"22 1 8:1 / / rw - {kind} x rw\n")


def test_a_database_on_a_network_file_system_is_not_opened(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("22 1 8:1 / / rw - nfs x rw\n")
    monkeypatch.setattr(host, "_MOUNTS", mounts)
    for attempt in (Database.open, upgrade):
        with pytest.raises(DatabaseError, match="network file system"):
            attempt(sqlite_url)


def test_this_machine_is_read_as_it_is(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, Path("/proc/self/mountinfo").read_text()) != ""
    refuse_network_file_system(tmp_path / "x.db")


def test_several_processes_of_one_host_share_a_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first, second = HostLock(path, host="one"), HostLock(path, host="one")
    first.close()
    third = HostLock(path, host="one")
    second.close()
    third.close()
    third.close()


def test_another_host_is_refused_while_somebody_has_the_database_open(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    first, second = HostLock(path, host="one"), HostLock(path, host="one")
    for lock in (first, second):
        with pytest.raises(DatabaseError, match=r"another host has it open\. SQLite serves one host"):
            HostLock(path, host="two")
        lock.close()
    taken = HostLock(path, host="two")
    with pytest.raises(DatabaseError, match="another host has it open"):
        HostLock(path, host="one")
    taken.close()


def test_what_a_dead_process_held_is_free(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    code = (
        "import sys, os, signal; from pathlib import Path; from runner.service.database.host import HostLock\n"
        "lock = HostLock(Path(sys.argv[1]), host='one'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, path]).returncode == -9
    HostLock(path, host="two").close()


def test_a_database_that_another_host_has_open_is_not_opened(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Database.open(sqlite_url)
    beside = Database.open(sqlite_url)
    beside.close()
    other = tmp_path / "boot_id"
    other.write_text("another boot\n")
    monkeypatch.setattr(host, "_BOOT_ID", other)
    for attempt in (Database.open, upgrade):
        with pytest.raises(DatabaseError, match="another host has it open"):
            attempt(sqlite_url)
    opened.close()
    Database.open(sqlite_url).close()


def test_a_lock_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"x\.db\.host cannot be written: No such file"):
        HostLock(tmp_path / "missing" / "x.db")
