"""The page in a real browser: what a person sees and can do, by mouse, by keys, on paper and without a script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runner.report import GroupFacts
from tests.report_page.browser import Tab
from tests.report_page.reports import GOOD, TRANSCRIPT, data_url, many, png, report

Open = Callable[..., Tab]

SHOWN = "document.querySelector('.detail-body').innerText"
ROWS = "[...document.querySelectorAll('.rollout-list .grid-body .grid-row')]"
IDS = f"{ROWS}.map((row) => row.querySelector('.c-id').innerText)"
COUNT = "document.querySelector('.count').innerText"


def show_first(tab: Tab) -> None:
    """Open the first rollout as a mouse does."""
    tab.evaluate(f"{ROWS}[0].click()")
    tab.wait("document.querySelector('.detail-body .transcript, .detail-body .failure')")


def choose(tab: Tab, label: str, value: str) -> None:
    """Choose in a field as a person does."""
    tab.evaluate(
        f"""(() => {{
            const labels = [...document.querySelectorAll('.filters label')];
            const field = labels.find((one) => one.innerText.startsWith({label!r})).querySelector('select');
            field.value = [...field.options].find((one) => one.text === {value!r}).value;
            field.dispatchEvent(new Event('change'));
        }})()"""
    )


def write(tab: Tab, text: str) -> None:
    """Write into the search field instead of what is there, wherever the focus is."""
    tab.evaluate("document.activeElement.blur()")
    tab.press("/")
    tab.tell("Input.insertText", text=text)


def with_transcript(*messages: Any) -> GroupFacts:
    outcome = msgspec.structs.replace(GOOD, transcript=[*messages])
    return GroupFacts(position=0, example_id="e", outcomes=[outcome], rollouts=1)


# -- what is there --------------------------------------------------------------------------------------------


def test_a_rollout_is_shown_with_all_that_is_known_of_it(opened: Open) -> None:
    tab = opened(report())
    show_first(tab)
    text = tab.evaluate(SHOWN)
    for part in (
        "finished", "correct", "0.25", "2 calls (1 failed)", "≈ 900 prompt, 80 completion", "capped_output",
        "Use the tools.", "multiply", '"a": 12', "144", "It is 144.", "but reluctantly",
        "a tool was called", "calculator.tools", "printed on two\nlines", "complained",
    ):  # fmt: skip
        assert part in text
    tab.press("j")
    tab.wait(f"{SHOWN}.includes('chosen by the runner')")
    text = tab.evaluate(SHOWN)
    for part in ("within 600 s.", "File tool.py, line 12", "512 bytes", "3 lines beyond the limits"):
        assert part in text


def test_an_answer_of_a_tool_is_shown_with_the_name_of_the_tool(opened: Open) -> None:
    tab = opened(report())
    show_first(tab)
    assert tab.evaluate("document.querySelector('.message.tool h4').innerText").split() == ["tool", "multiply", "4"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": data_url(png())}},
        {"type": "input_image", "image_url": data_url(png())},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data_url(png())[22:]}},
    ],
    ids=["chat completions", "responses", "messages"],
)
def test_a_picture_in_a_transcript_is_seen(opened: Open, part: dict[str, Any]) -> None:
    tab = opened(report(with_transcript({"role": "user", "content": [part]})))
    show_first(tab)
    tab.wait("document.querySelector('.message img').complete")
    assert tab.evaluate("document.querySelector('.message img').naturalWidth") == 8
    assert tab.evaluate("document.querySelector('.message img').alt").startswith("PNG image of 8 × 8 pixels")


GIF = bytes.fromhex("47494638396101000100800000ff0000ffffff21f90400000000002c00000000010001000002024401003b")


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif"])
def test_pictures_of_every_kind_are_seen_in_their_size(opened: Open, tab: Tab, kind: str) -> None:
    drawn = f"Object.assign(document.createElement('canvas'), {{width: 30, height: 20}}).toDataURL('image/{kind}')"
    url, size = (data_url(GIF, "gif"), (1, 1)) if kind == "gif" else (tab.evaluate(drawn), (30, 20))
    opened(report(with_transcript({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})))
    show_first(tab)
    tab.wait("document.querySelector('.message img').complete")
    assert tab.evaluate("document.querySelector('.message img').naturalWidth") == size[0]
    assert tab.evaluate("document.querySelector('.message img').alt") == (
        f"{kind.upper()} image of {size[0]} × {size[1]} pixels in the transcript"
    )


def test_a_picture_too_large_to_be_decoded_is_named_and_not_shown(opened: Open) -> None:
    huge = png()[:16] + (30_000).to_bytes(4, "big") * 2 + png()[24:]
    part = {"type": "image_url", "image_url": {"url": data_url(huge)}}
    tab = opened(report(with_transcript({"role": "user", "content": [part]})))
    show_first(tab)
    assert "An image of 30000 × 30000 pixels, too large to be shown" in tab.evaluate(SHOWN)
    assert tab.evaluate("document.querySelectorAll('.message img').length") == 0


NO_PICTURES = (
    "https://elsewhere.example/picture.png",
    "file:///etc/passwd",
    "data:image/svg+xml;base64,PHN2Zy8+",
    "data:text/html;base64,PGI+",
    "javascript:alert(1)",
    data_url(b"<html>no picture</html>"),
    data_url(png()[:15]),
    data_url(b"\xff\xd8\xff\xe0\x00\x10", "jpeg"),
    data_url(b"RIFF1234WEBPVP8 ", "webp"),
)


def test_what_is_no_picture_of_the_report_itself_is_named_and_not_loaded(opened: Open) -> None:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in NO_PICTURES]
    tab = opened(report(with_transcript({"role": "user", "content": parts})))
    show_first(tab)
    text = tab.evaluate(SHOWN)
    assert [url for url in NO_PICTURES if url not in text] == []
    assert tab.evaluate("document.querySelectorAll('.message img, .message a').length") == 0
    assert [asked for asked in tab.requests() if not asked.startswith(("file:///tmp", "data:,"))] == []


MESSAGES: tuple[Any, ...] = (
    "just text",
    7,
    None,
    ["a", ["b"]],
    {},
    {"role": 3},
    {"content": {"deep": [1]}},
    {"role": "user", "content": [None, 1]},
    {"role": "assistant", "tool_calls": [None, 1, {"function": {"arguments": "{no json"}}, {"function": None}]},
    {"role": "user", "content": [{"type": ["image"], "image_url": 3}, {"type": "image", "source": {"data": 1}}]},
    {"role": "__proto__", "name": ["x"], "tool_call_id": {}, "reasoning": {"a": 1}, "function_call": "x"},
)


def test_messages_of_any_shape_are_shown(opened: Open) -> None:
    tab = opened(report(with_transcript(*MESSAGES, {"role": "user", "content": "after them"})))
    show_first(tab)
    assert tab.evaluate("document.querySelectorAll('.message').length") == len(MESSAGES) + 1
    assert "after them" in tab.evaluate(SHOWN)
    assert tab.events("Runtime.exceptionThrown") == []


def test_a_long_transcript_shows_its_beginning_and_the_rest_when_it_is_asked_for(opened: Open) -> None:
    messages = [{"role": "user", "content": f"message {number}"} for number in range(450)]
    tab = opened(report(with_transcript({"role": "user", "content": "x" * 30_000}, *messages)))
    show_first(tab)
    assert tab.evaluate("document.querySelectorAll('.message').length") == 200
    for count in (400, 451):
        tab.evaluate("document.querySelector('.more button').click()")
        assert tab.evaluate("document.querySelectorAll('.message').length") == count
    assert tab.evaluate("document.querySelector('.message pre').innerText.length") == 20_000
    tab.evaluate("document.querySelector('.message button').click()")
    assert tab.evaluate("document.querySelector('.message pre').innerText.length") == 30_000


def test_a_run_without_any_outcome_has_a_page_too(opened: Open) -> None:
    nothing = GroupFacts(position=0, example_id="e", outcomes=[], rollouts=4, error="ValueError: no tools")
    tab = opened(report(nothing))
    assert tab.evaluate(COUNT) == "0 of 0 rollouts"
    tab.press("j")
    tab.press("Enter")
    assert tab.events("Runtime.exceptionThrown") == []


# -- lists ----------------------------------------------------------------------------------------------------


def test_of_thousands_of_rollouts_only_those_in_view_are_in_the_document(opened: Open) -> None:
    tab = opened(many(1250))
    assert tab.evaluate(COUNT) == "5,000 of 5,000 rollouts"
    assert tab.evaluate(f"{ROWS}.length") < 60
    assert tab.evaluate("document.querySelectorAll('*').length") < 3000
    tab.evaluate("document.querySelector('.rollout-list').focus()")
    tab.press("End")
    tab.wait(f"{IDS}.includes('1249-09890831-3')")
    tab.press("Enter")
    tab.wait("document.querySelector('.transcript')")
    assert "question 1249" in tab.evaluate(SHOWN)


def test_searching_finds_rollouts_by_every_word(opened: Open) -> None:
    tab = opened(many(50))
    write(tab, "max_turns after")
    tab.wait(f"!{COUNT}.startsWith('200')")
    assert tab.evaluate(f"{ROWS}.every((row) => row.querySelector('.c-reason').innerText === 'max_turns')")
    write(tab, "00134623")
    tab.wait(f"{COUNT}.startsWith('4 ')")
    write(tab, "nobody has this")
    tab.wait(f"{COUNT}.startsWith('0 ')")
    assert tab.evaluate("document.querySelector('.empty').checkVisibility()")


def test_searching_in_transcripts_finds_what_was_said_and_printed(opened: Open) -> None:
    tab = opened(many(300))
    tab.evaluate("document.querySelector('.filters input[type=checkbox]').click()")
    write(tab, '"question 123"')
    tab.wait(f"{COUNT}.startsWith('4 of')")
    assert tab.evaluate(IDS) == [f"123-00974037-{number}" for number in range(4)]


def test_filters_and_orders_go_together(opened: Open) -> None:
    tab = opened(many(50))
    choose(tab, "Ended", "not well")
    choose(tab, "Order", "brevity, lowest first")
    shown = tab.evaluate(f"{ROWS}.map((row) => row.querySelectorAll('.c-number')[1].innerText)")
    values = [float(value) for value in shown]
    assert values == sorted(values)
    assert tab.evaluate(f"{ROWS}.every((row) => row.classList.contains('bad'))")
    tab.evaluate("[...document.querySelectorAll('.filters button')].find((one) => one.innerText === 'Reset').click()")
    assert tab.evaluate(COUNT) == "200 of 200 rollouts"


def test_an_example_leads_to_its_rollouts(opened: Open) -> None:
    tab = opened(many(5))
    tab.evaluate("[...document.querySelectorAll('.tabs button')][1].click()")
    tab.wait("document.querySelectorAll('.example-list .grid-body .grid-row').length === 5")
    tab.evaluate("document.querySelectorAll('.example-list .grid-body .grid-row')[2].click()")
    tab.wait(f"{COUNT}.startsWith('4 of')")
    assert tab.evaluate(IDS) == [f"2-00015838-{number}" for number in range(4)]


def test_a_finding_leads_to_its_rollout_and_a_reason_to_all_of_them(opened: Open) -> None:
    tab = opened(report())
    tab.evaluate("document.querySelector('.notice.error button').click()")
    tab.wait("document.querySelector('.transcript')")
    assert tab.evaluate("document.querySelector('.detail-title').innerText") == "0-aaaa-1"
    tab.press("Escape")
    tab.evaluate(
        "[...document.querySelectorAll('#endings button')].find((one) => one.innerText === 'finished').click()"
    )
    tab.wait(f"{COUNT}.startsWith('1 of 2')")


# -- keys, light and dark, widths, paper, no script -----------------------------------------------------------


def test_everything_can_be_done_by_keys(opened: Open) -> None:
    tab = opened(many(5))
    tab.press("j")
    tab.press("j")
    tab.press("k")
    tab.press("Enter")
    tab.wait("document.querySelector('.transcript')")
    assert tab.evaluate("document.querySelector('.detail-title').innerText") == "0-00000000-1"
    assert tab.evaluate("document.activeElement.className") == "detail-title"
    tab.press("j")
    tab.wait("document.querySelector('.detail-title').innerText === '0-00000000-2'")
    tab.press("Escape")
    assert not tab.evaluate("document.querySelector('.detail').checkVisibility()")
    assert tab.evaluate("document.activeElement.className").startswith("grid rollout-list")
    tab.press("?")
    assert tab.evaluate("document.querySelector('dialog').open")
    tab.press("Escape")
    assert not tab.evaluate("document.querySelector('dialog').open")
    tab.press("/")
    assert tab.evaluate("document.activeElement.type") == "search"
    tab.press("j")
    assert tab.evaluate("document.activeElement.value") == "j"


def test_it_is_light_or_dark_as_the_system_is_unless_it_is_told_otherwise(opened: Open) -> None:
    tab = opened(report())
    ground = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(ground)
    tab.prefer(dark=True)
    dark = tab.evaluate(ground)
    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(20, 23, 28)"
    tab.press("t")
    assert tab.evaluate(ground) == light
    tab.prefer()
    tab.press("t")
    assert tab.evaluate(ground) == dark


def test_nothing_is_wider_than_the_window(opened: Open) -> None:
    tab = opened(many(20))
    for width in (320, 360, 768, 1600):
        tab.size(width, 800)
        show_first(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.press("Escape")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_the_list_is_whole_and_what_was_closed_is_open(opened: Open) -> None:
    tab = opened(many(40))
    tab.evaluate(
        f"addEventListener('afterprint', () => {{ window.printed = true; }}); "
        f"addEventListener('beforeprint', () => {{ window.rows = {ROWS}.length; "
        f"window.closed = document.querySelectorAll('details:not([open])').length; }})"
    )
    assert tab.pdf().startswith(b"%PDF")
    assert tab.evaluate("[window.rows, window.closed]") == [160, 0]
    tab.wait("window.printed")
    assert tab.evaluate(f"{ROWS}.length") < 60


def test_without_a_script_there_are_verdict_findings_and_tables(opened: Open, tab: Tab) -> None:
    tab.tell("Emulation.setScriptExecutionDisabled", value=True)
    opened(report(), ready=False)
    root = tab.tell("DOM.getDocument")["root"]["nodeId"]
    body = tab.tell("DOM.querySelector", nodeId=root, selector="body")["nodeId"]
    text = tab.tell("DOM.getOuterHTML", nodeId=body)["outerHTML"]
    for part in (
        "Not good",
        "closing raised OSError",
        "Termination reasons",
        "Without scripts there are no transcripts",
    ):
        assert part in text


def test_the_transcript_of_the_report_is_that_of_the_page(opened: Open) -> None:
    tab = opened(report())
    show_first(tab)
    assert tab.evaluate("document.querySelectorAll('.message').length") == len(TRANSCRIPT)
