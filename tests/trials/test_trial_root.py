"""The root of a trial sandbox: a system that can be written to, is nobody else's, and leaves the machine as it was."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.confined import Caller
from tests.trials.talking import Talk, opened

WRITE = """set -e
for folder in / /app /opt /root /home /srv /tmp /var/lib /var/log /etc /usr /usr/bin /usr/lib /usr/share \
        /usr/local/bin /usr/local/lib /usr/local/share /dev/shm; do
    mkdir -p $folder; echo "$MARK" > $folder/benchmax-mark
done
printf '#!/bin/sh\\necho changed\\n' > /tmp/ls; chmod 755 /tmp/ls; mv /tmp/ls /usr/bin/ls; ls
rm /usr/bin/cat
"""


def test_the_system_is_there_and_can_be_read(talk: Talk) -> None:
    assert "usr" in talk.said("ls /").split()
    assert talk.said("cut -d: -f1,3 /etc/passwd").split()[0] == "root:0"
    assert talk.run("ls /usr/bin/env /usr/lib /etc/ssl /proc/self/status /dev/null").exit == 0


def test_homes_and_folders_with_the_machines_own_files_are_empty(talk: Talk) -> None:
    # but for the way to the interpreter
    assert talk.said("find /home /srv /var /run /mnt /media /opt /tmp -type f | grep -v ^/tmp/ || true") == ""
    assert talk.run("ls /boot /lost+found").exit != 0
    assert talk.run("cat /etc/shadow /etc/hostname /etc/machine-id").out == ""


@pytest.mark.parametrize("caller", get_args(Caller))
def test_two_sandboxes_do_not_see_what_the_other_writes_and_the_machine_is_as_it_was(caller: Caller) -> None:
    def machine() -> list[object]:
        files = [Path("/usr/bin/ls"), Path("/usr/bin/cat"), *sorted(Path("/usr/local/bin").iterdir())]
        return [(path, path.lstat().st_mtime_ns, path.lstat().st_ino) for path in files]

    before = machine()
    with opened(caller) as one, opened(caller) as other:
        assert one.said(WRITE, env={"MARK": "one"}) == "changed"
        assert one.run("cat /etc/passwd").exit == 127
        assert other.said("cat /etc/passwd; ls /usr/bin/ls; find / /usr -maxdepth 1 -name benchmax-mark")
        assert other.run("ls /app/benchmax-mark /usr/bin/benchmax-mark /dev/shm/benchmax-mark").out == ""
        one.said("sleep 4321 >/dev/null 2>&1 &")
        assert "4321" not in other.said("cat /proc/[0-9]*/cmdline")
        assert machine() == before
    assert not Path("/usr/bin/benchmax-mark").exists()
    assert not Path("/dev/shm/benchmax-mark").exists()


def test_a_file_of_the_systems_cannot_be_changed_in_place_but_another_can_take_its_place(of_root: Talk) -> None:
    refused = of_root.run("echo x >> /usr/bin/env; chmod 777 /usr/bin/env; chown 5 /usr/bin/env")
    assert "denied" in refused.err or "permitted" in refused.err
    assert of_root.said(
        "cp /usr/bin/env /tmp/env; chmod 700 /tmp/env; mv /tmp/env /usr/bin/env; stat -c %a /usr/bin/env"
    )


def test_programs_can_be_installed_for_all_users(of_root: Talk) -> None:
    of_root.put("/usr/local/bin/tool", b"#!/bin/sh\necho works\n", mode=0o755)
    assert of_root.said("tool", user="agent") == "works"
