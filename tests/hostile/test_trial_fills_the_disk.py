"""Attack: commands of a trial fill the machine's disk or memory: many files, files without a name, shared memory."""

from __future__ import annotations

import pytest

from runner.limits import MIB, SANDBOX_SHM_BYTES
from tests.trials.talking import EndedError, Talk, opened


@pytest.mark.parametrize(
    "command",
    [
        "mkdir /many; cd /many; seq 9000 | xargs touch; sleep 1000",
        'python3 -c \'import os, time; f = open("/srv/x", "wb"); os.unlink("/srv/x"); f.write(bytes(10**8)); '
        "f.flush(); time.sleep(1000)'",
    ],
    ids=["many files", "a file without a name"],
)
def test_a_sandbox_that_fills_the_disk_is_ended(command: str) -> None:
    with opened(disk_bytes=64 * MIB) as talk, pytest.raises(EndedError):
        talk.run(command)


def test_shared_memory_and_devices_hold_no_more_than_they_may(talk: Talk) -> None:
    done = talk.run(
        f"head -c {SANDBOX_SHM_BYTES + MIB} /dev/zero > /dev/shm/large; stat -c %s /dev/shm/large; rm /dev/shm/*"
    )
    assert int(done.out) <= SANDBOX_SHM_BYTES
    # a folder like any other, which is measured
    assert talk.said("stat -f -c %T /dev /run /tmp /var").split() == talk.said("stat -f -c %T / / / /").split()
