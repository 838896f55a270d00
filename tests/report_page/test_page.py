"""The page as a file: what is in it, what it may do, how large it is, how it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from runner.report import GroupFacts, OutcomeFacts, Report
from runner.report.page import page, write_page
from runner.report.page.document import ASSETS, SCRIPTS
from runner.report.page.figures import duration, number
from tests.report_page.reading import read
from tests.report_page.reports import BAD, GOOD, many, report

OLDEST = {
    "format": 1,
    "bundle": {"digest": "d", "python_version": "3.11", "benchmax_version": "0.2.0", "pip_dependencies": []},
    "venv": {"key": "k", "path": "/v", "python": "/p", "packages": {}, "installer": "pip"},
    "sandbox": {"level": "off", "network": "open", "mechanisms": [], "uid": 0, "hash_seed": "0"},
    "model": {"kind": "mock", "name": "mock", "base_url": "http://127.0.0.1:1/v1"},
    "dataset": {"split": "eval", "path": "/d", "examples": 1},
    "groups": [
        {
            "position": 0,
            "example_id": "e",
            "rollouts": 1,
            "outcomes": [{"rollout_id": "0-e-0", "rewards": {}, "termination_reason": "done", "error": None}],
        }
    ],
    "headers": {},
    "timings": {},
}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_only_the_script_and_the_style_of_the_page_itself_may_run() -> None:
    found = read(page(report()))
    assert found.policy() == {
        "default-src": ["'none'"],
        "script-src": [digest(text) for text in found.scripts()],
        "style-src": [digest(text) for text in found.styles()],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
        "require-trusted-types-for": ["'script'"],
        "trusted-types": ["'none'"],
    }
    assert len(found.scripts()) == len(found.styles()) == 1


def test_the_policy_comes_before_everything_that_it_is_about() -> None:
    tags = [tag for tag, *_ in read(page(report())).shape]
    assert tags[:4] == ["html", "head", "meta", "meta"]


def test_the_page_names_no_place_that_it_would_load_anything_from() -> None:
    found = read(page(report()))
    assert {value for name, value in found.attributes if name in ("src", "href")} <= {
        "data:,", "#main", "#findings", "#rewards", "#endings", "#rollouts", "#performance", "#surroundings",
    }  # fmt: skip
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    [style] = found.styles()
    assert "url(" not in style
    assert "@import" not in style


def test_the_script_makes_no_markup_of_text_and_reaches_nothing() -> None:
    script = "\n".join((ASSETS / f"{name}.js").read_text() for name in SCRIPTS)
    forbidden = (
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
        "createContextualFragment", "fetch(", "XMLHttpRequest", "import(", "WebSocket", "EventSource", "sendBeacon",
    )  # fmt: skip
    assert not [name for name in forbidden if name in script]
    assert re.findall(r"https?://[^\"]+", script) == ["http://www.w3.org/2000/svg"]
    assert {path.stem for path in ASSETS.glob("*.js")} == {*SCRIPTS}


@pytest.mark.parametrize("asset", sorted(ASSETS.iterdir()), ids=lambda asset: asset.name)
def test_a_part_of_the_page_is_short_enough_to_read_and_ends_no_element(asset: Path) -> None:
    text = asset.read_text()
    assert len(text.splitlines()) <= 450
    assert "</" not in text
    assert "<!--" not in text


def test_a_page_holds_every_outcome_as_the_report_has_it() -> None:
    for original in (report(), many(200)):
        decoder = msgspec.json.Decoder(list[OutcomeFacts])
        assert [one for chunk in read(page(original)).packed() for one in decoder.decode(chunk)] == original.outcomes


def test_the_table_has_a_row_for_each_rollout() -> None:
    table = read(page(report())).table()
    assert table["rollouts"]["id"] == ["0-aaaa-0", "0-aaaa-1"]
    assert table["rollouts"]["group"] == [0, 0]
    assert table["rollouts"]["ok"] == [1, 0]
    assert [table["reasons"][place] for place in table["rollouts"]["reason"]] == ["finished", "rollout_timeout"]
    assert table["components"] == ["correct", "brevity"]
    assert table["rollouts"]["rewards"] == [[1.0, 0.0], [0.25, None]]
    assert table["groups"]["error"] == ["", "RemoteError: KeyError: scoring"]


def test_equal_reports_give_equal_pages_also_when_read_back() -> None:
    original = report()
    assert page(original) == page(original) == page(Report.from_json(original.to_json()))


def test_a_report_of_the_oldest_release_has_a_page() -> None:
    found = read(page(Report.from_json(json.dumps(OLDEST).encode())))
    assert "Not good" in found.text
    assert "When rollouts ran is not in this report." in found.text
    assert found.table()["rollouts"]["id"] == ["0-e-0"]


@pytest.mark.parametrize(
    "groups",
    [
        [GroupFacts(position=0, example_id="e", outcomes=[], rollouts=4)],
        [GroupFacts(position=0, example_id="e", outcomes=[GOOD], rollouts=1)],
        [
            GroupFacts(
                position=0,
                example_id="e",
                outcomes=[
                    msgspec.structs.replace(GOOD, rewards={f"component {n}": value for n in range(300)}, seconds=value)
                    for value in (float("inf"), float("nan"), 1.7e308, -1.7e308, 5e-324, 0.0)
                ],
                rollouts=6,
            )
        ],
    ],
    ids=["nothing", "one", "numbers that cannot be drawn"],
)
def test_a_page_can_be_made_of_any_outcomes(groups: list[GroupFacts]) -> None:
    found = read(page(report(*groups)))
    drawn = [value for name, value in found.attributes if name in ("d", "x", "y", "width", "height")]
    assert not [value for value in drawn if "n" in value]
    json.loads(found.block("table"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_verdict_and_findings_come_first_and_need_no_script() -> None:
    text = read(page(report())).text
    text = text[text.index("Verdict") :]
    order = [
        "Not good",
        "1 of 6 rollouts ended well.",
        "Findings",
        "1 group raised",
        "closing raised OSError",
        "Rewards",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "The rollout did not end within 600 s." in text
    assert "Traceback: line 3, in score_group" in text


def test_any_number_of_reasons_and_components_leaves_a_page_that_can_be_read() -> None:
    outcomes = [
        msgspec.structs.replace(BAD, rollout_id=f"r{n}", termination_reason=f"reason {n}", rewards={f"reward {n}": 1.0})
        for n in range(1000)
    ]
    found = read(page(report(GroupFacts(position=0, example_id="e", outcomes=outcomes, rollouts=1000))))
    assert "980 more rollouts did not end well, for reasons that are rarer." in found.text
    assert "900 more reasons are with their rollouts." in found.text
    assert "800 more components are with each rollout." in found.text
    assert len(found.table()["reasons"]) == 1000


def test_a_good_run_says_so() -> None:
    good = report(GroupFacts(position=0, example_id="e", outcomes=[GOOD], rollouts=1), replay=None, close_error="")
    text = read(page(good)).text
    assert "All 1 rollout ended well." in text
    assert "Not good" not in text


def test_a_page_has_at_most_two_kilobytes_for_a_rollout_beside_what_it_said() -> None:
    small, large = (len(page(many(groups, transcripts=False))) for groups in (1, 500))
    assert (large - small) / (499 * 4) <= 2000
    # what is not text like a picture's takes no more than it has
    assert len(page(many(500))) - large <= 2000 * 800


def test_one_rollout_that_said_much_does_not_make_others_slow_to_look_at() -> None:
    long = msgspec.structs.replace(GOOD, transcript=[{"role": "user", "content": "x" * 3_000_000}])
    chunks = read(page(report(GroupFacts(position=0, example_id="e", outcomes=[GOOD, long, BAD], rollouts=3)))).packed()
    assert [len(msgspec.json.decode(chunk)) for chunk in chunks] == [1, 1, 1]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.html"
    write_page(report(), path)
    before = path.read_bytes()
    assert before == page(report())

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_page(many(3), path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.123456, "0.123"), (-2.5, "-2.5"), (1234.0, "1234"), (45678.0, "45.7 k"),
     (3.2e6, "3.2 M"), (1e30, "1e+30"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (0.0123, "12.3 ms"), (2.345, "2.35 s"), (75.0, "1 min 15 s"), (3725.0, "1 h 2 min")],
)
def test_spans_of_time_are_in_units_that_fit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
