"""docs/protocol.md and the program within a trial sandbox say the same."""

from __future__ import annotations

import re
from pathlib import Path

from runner.limits import Limits
from runner.trials.inside.command import DRAIN_S, TIMED_OUT
from runner.trials.inside.fields import FIELDS, KINDS
from runner.trials.inside.program import MOST
from runner.trials.inside.stream import MAX_FRAME
from tests.trials.talking import Talk

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "protocol.md").read_text("utf-8").partition("## The stream of a trial sandbox\n")[2]


def documented() -> dict[str, tuple[list[str], list[str]]]:
    """Name of each request → its fields, and those of its answer."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
    return {name: (re.findall(r"`(\w+)`", fields), re.findall(r"`(\w+)`", answer)) for name, fields, answer in rows}


def test_every_request_is_there_with_its_fields() -> None:
    assert {name: fields for name, (fields, _) in documented().items()} == {
        name: [*fields] for name, fields in FIELDS.items()
    }


def test_every_answer_has_the_fields_that_the_page_says(talk: Talk) -> None:
    talk.put("/tmp/asked", b"x")
    requests: dict[str, dict[str, object]] = {
        "exec": {"command": "true"},
        "cancel": {"of": 1},
        "get": {"path": "/tmp/asked", "kind": "file"},
        "stat": {"path": "/tmp/asked"},
    }
    for name, fields in requests.items():
        answer = talk.answer(talk.ask(op=name, **fields))
        assert [*answer] == ["id", *documented()[name][1]], name
    assert {*talk.ready} == {"ready", "users", "network", "pid"} == {*re.findall(r'"(\w+)": ', PAGE)}


def test_the_numbers_are_the_programs() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {MAX_FRAME}" in text
    assert f"at most {MOST} at once" in text
    assert f"within {DRAIN_S} s" in text
    assert f"`exit` is {TIMED_OUT} then" in text
    assert all(f"`{kind}`" in text for kind in KINDS)
    for kind in ("missing", "refused", "io", "invalid"):
        assert f"`{kind}` (" in text


def test_the_limits_on_the_page_about_security_are_the_default_ones() -> None:
    text = (DOCS / "security.md").read_text("utf-8").partition("## Trial sandboxes\n")[2].partition("\n## ")[0]
    limits = Limits()
    assert f"`trial_sandboxes` ({limits.trial_sandboxes} at once" in text
    assert f"`trial_memory_bytes` ({(limits.trial_memory_bytes or 0) >> 30} GiB)" in text
    assert f"`trial_disk_bytes` ({(limits.trial_disk_bytes or 0) >> 30} GiB," in text
    assert f"`trial_processes` ({limits.trial_processes}," in text
    assert f"`trial_s` ({limits.trial_s / 3600:g} hours)" in text
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (DOCS.parent / path).is_file(), path
