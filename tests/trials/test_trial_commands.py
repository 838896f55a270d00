"""Commands of a trial sandbox: what they get, how they end, and what stays."""

from __future__ import annotations

import pytest

from tests.trials.talking import RefusedError, Talk

MIB = 1024 * 1024


def test_a_command_is_roots_and_its_output_and_exit_code_come_back(talk: Talk) -> None:
    done = talk.run("id -u; pwd; echo $HOME; echo wrong >&2; exit 7")
    assert (done.out, done.err, done.exit, done.signal) == ("0\n/\n/root\n", "wrong\n", 7, None)


def test_a_command_gets_a_folder_and_variables(talk: Talk) -> None:
    said = talk.said("pwd; echo $GREETING; echo $PATH", cwd="/tmp", env={"GREETING": "häh\n?"})
    assert said.startswith("/tmp\nhäh ?\n/usr/local/sbin:")


def test_nothing_of_the_callers_environment_is_there(talk: Talk) -> None:
    names = {line.partition("=")[0] for line in talk.said("env").splitlines()}
    assert names <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "PWD", "SHLVL", "_"}


def test_standard_input_is_empty_and_there_are_pseudo_terminals(talk: Talk) -> None:
    assert talk.said("cat; python3 -c 'import pty; print(len(pty.openpty()))'") == "2"


def test_python3_is_there(talk: Talk) -> None:
    assert talk.said("python3 -c 'import json; print(json.dumps([1]))'") == "[1]"


def test_a_signal_that_ends_a_command_is_told(talk: Talk) -> None:
    done = talk.run("kill -TERM $$")
    assert (done.exit, done.signal, done.timed_out) == (143, 15, False)


def test_error_output_can_be_merged_in_order(talk: Talk) -> None:
    done = talk.run("echo one; echo two >&2; echo three", merge=True)
    assert (done.out, done.err) == ("one\ntwo\nthree\n", "")


def test_much_output_comes_whole(talk: Talk) -> None:
    done = talk.run(f"head -c {8 * MIB} /dev/zero | tr '\\0' x; echo end >&2")
    assert (len(done.out), set(done.out), done.err) == (8 * MIB, {"x"}, "end\n")


def test_a_command_that_is_not_read_waits_and_others_go_on_after_it(talk: Talk) -> None:
    # many times what a socket holds, and none of it is read meanwhile
    first = talk.ask(op="exec", command=f"head -c {4 * MIB} /dev/zero")
    second = talk.ask(op="exec", command="echo ready")
    came: dict[int, bytearray] = {}
    answers: dict[int, int] = {}
    while len(answers) < 2:
        channel, found = talk.frame()
        if channel:
            came.setdefault(channel, bytearray()).extend(found)
        else:
            answers[found["id"]] = found["exit"]
    assert (answers, len(came[2 * first]), bytes(came[2 * second])) == ({first: 0, second: 0}, 4 * MIB, b"ready\n")


def test_several_commands_run_at_once(talk: Talk) -> None:
    talk.said("rm -f /tmp/pipe; mkfifo /tmp/pipe")
    reader = talk.ask(op="exec", command="cat /tmp/pipe")
    writer = talk.ask(op="exec", command="echo across > /tmp/pipe")
    data: dict[int, bytearray] = {}
    talk.answer(reader, data)
    assert bytes(data[2 * reader]) == b"across\n"
    assert writer


def test_a_command_whose_time_is_over_is_killed_with_its_group_and_others_stay(talk: Talk) -> None:
    talk.said("sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/stays")
    done = talk.run("sleep 1001 & echo $! > /tmp/goes; echo begun; wait", timeout_s=0.2)
    assert (done.out, done.exit, done.timed_out) == ("begun\n", 124, True)
    assert talk.run("kill -0 $(cat /tmp/stays)").exit == 0
    assert talk.run("kill -0 $(cat /tmp/goes)").exit != 0
    talk.said("kill $(cat /tmp/stays)")


def test_a_command_that_ignores_signals_is_killed_all_the_same(talk: Talk) -> None:
    assert talk.run("trap '' TERM INT HUP; while true; do :; done", timeout_s=0.2).timed_out


def test_a_command_can_be_cancelled(talk: Talk) -> None:
    running = talk.ask(op="exec", command="echo begun; sleep 1000")
    data: dict[int, bytearray] = {}
    while 2 * running not in data:
        channel, found = talk.frame()
        data[channel] = found
    talk.ask(op="cancel", of=running)
    assert talk.answer(running)["signal"] == 9
    # one that is not there is nothing to complain about
    assert talk.answer(talk.ask(op="cancel", of=running))["ok"]


def test_a_process_that_keeps_the_output_open_does_not_keep_a_command_and_lives_on(talk: Talk) -> None:
    talk.said("rm -f /tmp/end; mkfifo /tmp/end")
    # it writes there again and again after its command has ended
    done = talk.run("(for i in 1 2 3 4; do sleep 0.2; echo tick; done; echo lived > /tmp/end) & echo begun")
    assert (done.out.split()[0], done.exit) == ("begun", 0)
    assert talk.said("cat /tmp/end") == "lived"


def test_what_a_command_starts_is_there_for_the_next(talk: Talk) -> None:
    talk.said("python3 -m http.server --bind 127.0.0.1 8000 >/tmp/log 2>&1 & echo $! > /tmp/server")
    talk.said(
        "cd /tmp; echo page > index; for i in $(seq 100); do "
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))' 2>/dev/null && exit; "
        "sleep 0.05; done; exit 1"
    )
    talk.said("kill $(cat /tmp/server)")


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"op": "exec", "command": "true", "cwd": "/nowhere"}, "missing"),
        ({"op": "exec", "command": 5}, "invalid"),
        ({"op": "exec", "command": "a\0b"}, "invalid"),
        ({"op": "exec", "command": "true", "env": ["a"]}, "invalid"),
        ({"op": "exec", "command": "true", "env": {"a": 1}}, "invalid"),
        ({"op": "exec", "command": "true", "timeout_s": -1}, "invalid"),
        ({"op": "exec", "command": "true", "timeout_s": "1"}, "invalid"),
        ({"op": "exec", "command": "true", "user": ["root"]}, "invalid"),
        ({"op": "exec", "command": "true", "user": "../root"}, "invalid"),
        ({"op": "exec", "command": "x" * 200_000}, "io"),
        ({"op": "fetch", "path": "/"}, "invalid"),
        ({"op": ["exec"]}, "invalid"),
        ({"op": "stat", "path": "relative"}, "invalid"),
        ({"op": "stat", "path": "/", "follow": True}, "invalid"),
        ({"op": "get", "path": "/etc", "kind": "zip"}, "invalid"),
        ({"op": "stat", "path": None}, "invalid"),
        ({"op": "get", "path": "/nothing", "kind": "file"}, "missing"),
        ({"op": "get", "path": "/nothing", "kind": "tar"}, "missing"),
        ({"op": "get", "path": "/etc", "kind": "file"}, "invalid"),
        ({"op": "get", "path": "/etc/passwd", "kind": "tar"}, "invalid"),
        ({"op": "get", "path": "/dev/zero", "kind": "file"}, "invalid"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_and_the_sandbox_goes_on(
    request_: dict[str, object], kind: str, talk: Talk
) -> None:
    with pytest.raises(RefusedError) as refused:
        talk.answer(talk.ask(**request_))
    assert refused.value.kind == kind
    assert talk.said("echo on") == "on"


def test_a_cancel_of_nonsense_is_nothing(talk: Talk) -> None:
    assert talk.answer(talk.ask(op="cancel", of=[1]))["ok"]


@pytest.mark.parametrize("seconds", [1e9, 1e300, float("inf")])
def test_a_time_beyond_all_bounds_is_none(talk: Talk, seconds: float) -> None:
    assert talk.said("echo on", timeout_s=seconds) == "on"
