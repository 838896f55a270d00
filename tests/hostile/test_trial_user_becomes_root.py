"""Attack: a user of a trial sandbox becomes its root by a set-uid program, or by root's own program."""

from __future__ import annotations

from tests.trials.talking import Talk


def test_a_program_that_is_roots_and_set_uid_makes_nobody_root(of_root: Talk) -> None:
    of_root.said("cp /usr/bin/id /usr/local/bin/who; chmod 6755 /usr/local/bin/who; test -u /usr/local/bin/who")
    assert of_root.said("who -u; who -g", user=1500) == "1500\n1500"
    assert of_root.run("su root -c id", user=1500).exit != 0


def test_the_program_that_runs_commands_cannot_be_taken_over_by_whoever_it_runs(of_root: Talk) -> None:
    pid = of_root.ready["pid"]
    take = f"cat /proc/{pid}/mem /proc/{pid}/maps /proc/{pid}/fd/3; echo x > /proc/{pid}/mem; echo x > /proc/{pid}/fd/3"
    for user in ("root", "agent"):
        done = of_root.run(take, user=user)
        assert done.exit != 0
        assert done.out == ""
    pidfd = f"""python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
exit(libc.syscall(438, os.pidfd_open({pid}), 3, 0) >= 0)
'"""
    assert of_root.run(pidfd).exit == 0
