"""Attack: commands of a trial read files of the machine's, of the caller's and of another sandbox's."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.trials.talking import RefusedError, Talk

LOOK = """
cat "$SECRET" "/proc/1/root$SECRET" "/proc/2/root$SECRET" "/../..$SECRET" 2>&1
ln -s "$SECRET" /tmp/link; cat /tmp/link 2>&1
ln "$SECRET" /tmp/hard 2>&1
for each in /proc/[0-9]*; do cat "$each/cwd$SECRET" "$each/root$SECRET" "$each/environ"; ls -l "$each/fd"; done 2>&1
find / -xdev -name "$NAME" 2>/dev/null; find /usr /dev /proc -maxdepth 2 -name "$NAME" 2>/dev/null
"""


def test_nothing_of_the_machines_but_its_system_is_there(talk: Talk) -> None:
    with tempfile.TemporaryDirectory(prefix="benchmax-attack-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        secret = folder / "secret"
        secret.write_text("open to everybody")
        secret.chmod(0o644)
        said = talk.run(LOOK, env={"SECRET": str(secret), "NAME": secret.name}).out
        assert "open to everybody" not in said
        # nor by what moves files
        with pytest.raises(RefusedError) as refused:
            talk.get("/tmp/link")
        assert refused.value.kind == "missing"
        assert secret.stat().st_nlink == 1
        talk.put(str(secret), b"mine")
        assert secret.read_text() == "open to everybody"
    talk.said("rm -rf /tmp/link")


def test_a_file_of_the_systems_that_only_its_owner_reads_stays_closed(talk: Talk) -> None:
    closed = [path for path in Path("/usr/lib").glob("*/*") if path.is_file() and not path.stat().st_mode & 0o044]
    for path in [*closed, Path("/etc/shadow"), Path("~root/.bashrc").expanduser(), Path("/etc/ssl/private")]:
        assert talk.run(f"cat '{path}'").exit != 0
