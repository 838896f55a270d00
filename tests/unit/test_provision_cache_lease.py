"""Leases: who holds, who must wait, and what is left of a holder that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.provision.lease import Lease

HOLDER = """
import sys
from pathlib import Path
from runner.provision.lease import Lease
lease = Lease.shared(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.lease"
    path.touch()
    return path


def test_many_may_use_a_thing_at_once_and_nobody_may_remove_it_meanwhile(file: Path) -> None:
    first, second = Lease.shared(file), Lease.shared(file)
    assert first is not None
    assert second is not None
    assert Lease.exclusive(file) is None
    first.release()
    assert Lease.exclusive(file) is None
    second.release()
    alone = Lease.exclusive(file)
    assert alone is not None
    assert Lease.shared(file) is None
    alone.release()


def test_release_may_be_called_twice_and_the_end_of_the_object_is_one(file: Path) -> None:
    lease = Lease.shared(file)
    assert lease is not None
    lease.release()
    lease.release()
    assert not lease.held
    forgotten = Lease.shared(file)
    del forgotten
    assert Lease.exclusive(file) is not None


def test_hold_of_a_killed_process_is_gone_with_it(file: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert Lease.exclusive(file) is None
        holder.send_signal(signal.SIGKILL)
    assert Lease.exclusive(file) is not None


def test_children_do_not_inherit_a_hold(file: Path) -> None:
    lease = Lease.shared(file)
    assert lease is not None
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, close_fds=False) as child:
        lease.release()
        # a moment after the parent goes on, the kernel closes what a new program does not inherit
        began = time.monotonic()
        while (taken := Lease.exclusive(file)) is None and time.monotonic() - began < 10:
            time.sleep(0.001)
        assert taken is not None
        assert child.poll() is None


def test_use_is_stamped_at_its_beginning_and_at_its_end_and_a_look_is_not(file: Path) -> None:
    os.utime(file, (1000, 1000))
    with Lease.exclusive(file) or pytest.fail("held by nobody"):
        pass
    assert file.stat().st_mtime == 1000
    lease = Lease.shared(file)
    assert lease is not None
    assert file.stat().st_mtime > 1000
    os.utime(file, (1000, 1000))
    lease.release()
    assert file.stat().st_mtime > 1000


def test_file_that_is_missing_is_made_only_on_demand(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Lease.shared(tmp_path / "absent.lease")
    assert Lease.exclusive(tmp_path / "absent.lease", create=True) is not None
