"""Who commands run as: any user where the caller is root, else root alone, and that is said."""

from __future__ import annotations

import pytest

from tests.trials.talking import RefusedError, Talk, opened


def test_a_sandbox_of_roots_has_users(of_root: Talk) -> None:
    assert of_root.ready["users"] == "range"
    assert of_root.said("id -u; id -un; cd ~; pwd; touch mine; stat -c %U mine", user="agent") == (
        "1000\nagent\n/home/agent\nagent".replace("1000", of_root.said("id -u agent"))
    )
    assert of_root.said("id -u; id -g", user=1234) == "1234\n1234"
    assert of_root.said("id -un", user="nobody") == "nobody"
    assert of_root.said("id -un", user=0) == "root"


def test_a_user_cannot_change_what_is_roots(of_root: Talk) -> None:
    of_root.said("mkdir -p /app; echo kept > /app/file")
    done = of_root.run("rm /app/file; echo x > /app/file; cat /proc/1/environ; kill -9 2; id -G", user="agent")
    assert (done.exit, done.out.split()) == (0, [of_root.said("id -u agent")])
    assert of_root.said("cat /app/file") == "kept"
    assert "CapEff:\t0000000000000000" in of_root.said("cat /proc/self/status", user="agent")


def test_root_can_give_files_away_and_signal_all_users(of_root: Talk) -> None:
    of_root.put("/srv/given", b"x", owner="agent", mode=0o600)
    assert of_root.said("stat -c '%U %a' /srv/given; chown nobody /srv/given; stat -c %U /srv/given") == (
        "agent 600\nnobody"
    )
    pid = of_root.said("sleep 1000 >/dev/null 2>&1 & echo $!", user="agent")
    of_root.said(f"kill -9 {pid}")


def test_a_user_that_a_command_has_made_is_known(of_root: Talk) -> None:
    of_root.said("echo made:x:2000:2000::/srv:/bin/sh >> /etc/passwd; echo crew:x:3000:made >> /etc/group")
    assert of_root.said("id -u; id -G; echo $HOME", user="made") == "2000\n2000 3000\n/srv"
    of_root.said("echo big:x:70000:70000::/:/bin/sh >> /etc/passwd; echo 'broken:::\nx:x:y:z:::' >> /etc/passwd")
    with pytest.raises(RefusedError, match="beyond 65535"):
        of_root.run("true", user="big")


def test_a_sandbox_of_an_ordinary_users_has_root_alone_and_says_what_helps() -> None:
    with opened("ordinary") as talk:
        assert talk.ready["users"] == "one"
        assert talk.said("id -u", user="root") == talk.said("id -u", user=0) == "0"
        for user in ("agent", 1000, "nobody"):
            with pytest.raises(RefusedError, match="started by root") as refused:
                talk.run("true", user=user)
            assert refused.value.kind == "refused"
        # and none is made by the way
        assert "agent" not in talk.said("cat /etc/passwd")
