"""Server-sent events are passed on whole, however their bytes were cut, and as they were written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.gateway.events import EventStream, event_data, split_events

ENDS = ["\n\n", "\r\n\r\n", "\r\r"]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)


@pytest.mark.parametrize("end", ENDS)
def test_an_event_goes_on_at_its_end_and_not_before(end: str) -> None:
    stream = EventStream()
    event = f"data: one{end}".encode()
    assert [stream.feed(bytes([byte])) for byte in event[:-1]] == [b""] * (len(event) - 1)
    assert stream.feed(event[-1:]) == event


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(TEXTS, st.sampled_from(ENDS))),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_nothing_is_lost_or_cut_wherever_the_bytes_are(events: list[tuple[str, str]], sizes: list[int]) -> None:
    written = [f"data: {text}{end}".encode() for text, end in events]
    data, stream, passed, turn = b"".join(written), EventStream(), [], 0
    while data:
        size = sizes[turn % len(sizes)]
        whole = stream.feed(data[:size])
        if whole:
            assert whole.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))
            passed.append(whole)
        data, turn = data[size:], turn + 1
    assert b"".join(passed) + stream.finish() == b"".join(written)


def test_a_last_event_without_an_end_gets_one() -> None:
    stream = EventStream()
    assert stream.feed(b"data: a\n\ndata: [DONE]\n") == b"data: a\n\n"
    assert stream.finish() == b"data: [DONE]\n\n\n"
    assert stream.finish() == b""


def test_events_are_split_as_they_were_written() -> None:
    events = b": hello\n\ndata: a\r\ndata: b\r\n\r\nevent: x\ndata:c\n\n"
    assert split_events(events) == [b": hello\n\n", b"data: a\r\ndata: b\r\n\r\n", b"event: x\ndata:c\n\n"]
    assert [event_data(event) for event in split_events(events)] == [b"", b"a\nb", b"c"]
