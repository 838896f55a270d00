"""Logged and printed text is attributed to its rollout, bounded where it arises, and never a lie."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmax.envs.logging import group_context, rollout_context
from runner.limits import LOG_LINE_CHARS
from runner.protocol import Log, encode
from runner.worker.calls import CURRENT_CALL, CallState
from runner.worker.output import OUTSIDE, AttributedStream, LogHandler, OutputBook, current_place


class Sent:
    def __init__(self, limit: int = 10_000) -> None:
        self.messages: list[Log] = []
        self.book = OutputBook(self.take, limit)

    def take(self, message: Log) -> None:
        encode(message)
        self.messages.append(message)

    def lines(self) -> list[tuple[int | None, tuple[str, ...], str, str]]:
        return [(m.call, tuple(m.rollouts), m.stream, m.text) for m in self.messages if m.text]


@contextmanager
def in_call(*rollouts: str, call: int = 1) -> Iterator[CallState]:
    state = CallState(call, frozenset(rollouts), pending=set(rollouts))
    token = CURRENT_CALL.set(state)
    try:
        yield state
    finally:
        CURRENT_CALL.reset(token)


@contextmanager
def logger_of(sent: Sent) -> Iterator[logging.Logger]:
    logger = logging.Logger("env.module")
    handler = LogHandler(sent.book)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


# -- where it belongs -----------------------------------------------------------------------------------------


def test_outside_of_calls_is_no_place() -> None:
    assert current_place() == OUTSIDE
    with rollout_context("a"):
        assert current_place() == OUTSIDE


def test_inside_a_rollout_is_that_rollout_and_inside_scoring_all_of_the_group() -> None:
    with in_call("a", "b"):
        assert current_place() == (1, ())
        with rollout_context("a"):
            assert current_place() == (1, ("a",))
        with group_context(["a", "b"]):
            assert current_place() == (1, ("a", "b"))
            with rollout_context("b"):
                assert current_place() == (1, ("b",))


def test_rollouts_that_code_of_the_bundle_names_itself_are_not_told_to_the_caller() -> None:
    with in_call("a", "b"):
        with rollout_context("my own"):
            assert current_place() == (1, ())
        with rollout_context(""):
            assert current_place() == (1, ())
        with group_context(["my own", "a", ""]):
            assert current_place() == (1, ("a",))


def test_what_outlives_its_call_is_outside() -> None:
    with in_call("a") as state, rollout_context("a"):
        state.over = True
        assert current_place() == OUTSIDE


async def test_tasks_and_threads_of_a_rollout_belong_to_it() -> None:
    sent = Sent()
    with in_call("a"), rollout_context("a"), logger_of(sent) as logger:

        async def task() -> None:
            logger.warning("task")

        await asyncio.create_task(task())
        await asyncio.to_thread(logger.warning, "thread")
        bare = threading.Thread(target=logger.warning, args=("bare thread",))
        bare.start()
        await asyncio.to_thread(bare.join)
    assert [line[1] for line in sent.lines()] == [("a",), ("a",), ()]


def test_the_log_of_how_a_rollout_ended_belongs_to_that_rollout() -> None:
    sent = Sent()
    with in_call("a", "b"):
        text = "benchmax.rollout.failed rollout_id=b termination_reason=x: y"
        sent.book.log(40, "benchmax.envs.environment", text)
        sent.book.log(40, "another.logger", text)
        sent.book.log(40, "benchmax.envs.environment", text.replace("=b ", "=z "))
        sent.book.log(40, "benchmax.envs.environment", text.replace("=b ", "=group "))
    assert [line[1] for line in sent.lines()] == [("b",), (), (), ("a", "b")]


# -- printed text ---------------------------------------------------------------------------------------------


def test_printed_lines_are_whole_and_the_last_one_comes_with_the_end() -> None:
    sent = Sent()
    stream = AttributedStream(sent.book, "stdout", io.StringIO())
    with in_call("a"), rollout_context("a"):
        print("one", "and\ntwo", end="", file=stream)
        print(" and more", file=stream)
        print("rest", end="", file=stream)
    assert [line[3] for line in sent.lines()] == ["one and", "two and more"]
    sent.book.settle(2)
    assert len(sent.messages) == 2
    sent.book.settle(1)
    assert sent.lines()[2] == (1, ("a",), "stdout", "rest")


def test_text_printed_outside_of_rollouts_goes_to_the_stream_underneath() -> None:
    sent = Sent()
    under = io.StringIO()
    stream = AttributedStream(sent.book, "stderr", under)
    print("outside", file=stream)
    stream.flush()
    assert under.getvalue() == "outside\n"
    assert sent.messages == []


def test_two_rollouts_that_print_at_once_do_not_mix() -> None:
    sent = Sent()
    stream = AttributedStream(sent.book, "stdout", io.StringIO())
    with in_call("a", "b"):
        for text in ("1", "2\n"):
            for rollout in ("a", "b"):
                with rollout_context(rollout):
                    stream.write(text)
    assert sent.lines() == [(1, ("a",), "stdout", "12"), (1, ("b",), "stdout", "12")]


def test_a_line_without_end_does_not_grow_without_end() -> None:
    sent = Sent(limit=10**9)
    stream = AttributedStream(sent.book, "stdout", io.StringIO())
    with in_call("a"), rollout_context("a"):
        for _ in range(1000):
            stream.write("x" * 100)
    assert len(sent.messages) >= 5


def test_a_stream_in_place_of_the_real_one_behaves_like_one() -> None:
    under = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    stream = AttributedStream(Sent().book, "stdout", under)
    assert stream.writable()
    assert not stream.isatty()
    assert stream.encoding == "utf-8"
    assert stream.buffer is under.buffer
    assert stream.write("abc") == 3
    with pytest.raises(TypeError, match="must be str, not bytes"):
        stream.write(b"abc")  # type: ignore[arg-type]  # the point
    stream.close()
    assert not under.closed


# -- log records ----------------------------------------------------------------------------------------------


def test_a_record_is_sent_with_level_logger_and_formatted_text() -> None:
    sent = Sent()
    with in_call("a"), rollout_context("a"), logger_of(sent) as logger:
        logger.warning("%d of %s", 3, "four")
        try:
            raise ValueError("cause")
        except ValueError:
            logger.exception("failed")
    first, second = sent.messages
    assert (first.stream, first.level, first.logger, first.text) == ("log", 30, "env.module", "3 of four")
    assert second.text.startswith("failed\nTraceback")
    assert second.text.endswith("ValueError: cause")


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_a_record_that_cannot_be_formatted_is_sent_as_that_fact() -> None:
    sent = Sent()
    with logger_of(sent) as logger:
        logger.warning("%d", "no number")
        logger.warning("%s", Hostile())
        logger.warning(Hostile())
    assert [line[3] for line in sent.lines()] == [
        "<log record not formattable: TypeError for '%d'>",
        "<log record not formattable: RuntimeError for '%s'>",
        "<log record not formattable: RuntimeError>",
    ]


@pytest.mark.parametrize("level", [-5, 0, 1000, 5000])
def test_any_level_crosses(level: int) -> None:
    sent = Sent()
    sent.book.log(level, "x" * 5000, "\ud800")
    assert 0 <= sent.messages[0].level <= 1000
    assert sent.messages[0].text == "\\ud800"


# -- bounds ---------------------------------------------------------------------------------------------------


def test_of_a_flood_the_beginning_and_the_end_are_kept_and_the_rest_is_counted() -> None:
    cost = len("l" + "line 00") + LOG_LINE_CHARS
    sent = Sent(limit=6 * cost)
    with in_call("a", "b"):
        for rollout in ("a", "b"):
            with rollout_context(rollout):
                for number in range(20):
                    sent.book.log(20, "l", f"line {number:02d}")
    assert [m.text for m in sent.messages] == ["line 00", "line 01", "line 02"] * 2
    sent.messages.clear()
    sent.book.settle(1)
    told = [(m.rollouts, m.dropped, m.text) for m in sent.messages]
    assert told == [
        (rollout, dropped, text)
        for rollout in (["a"], ["b"])
        for dropped, text in ((14, ""), (0, "line 17"), (0, "line 18"), (0, "line 19"))
    ]


def test_a_line_larger_than_the_limit_is_counted_and_a_shorter_one_after_it_kept() -> None:
    sent = Sent(limit=200)
    with in_call("a"), rollout_context("a"):
        for text in ("x" * 300, "short"):
            sent.book.log(20, "l", text)
    sent.book.settle(1)
    assert [(m.dropped, m.text) for m in sent.messages] == [(1, ""), (0, "short")]


def test_empty_lines_are_not_sent_and_cost_nothing() -> None:
    sent = Sent(limit=200)
    with in_call("a"), rollout_context("a"):
        for _ in range(1000):
            sent.book.printed((1, ("a",)), "stdout", "\n")
        sent.book.log(20, "", "")
        sent.book.log(20, "", "text")
    assert [m.text for m in sent.messages] == ["text"]


def test_what_a_group_says_together_has_one_limit_whichever_rollouts_are_named() -> None:
    sent = Sent(limit=400)
    with in_call(*"abcdefgh"):
        for number in range(256):
            with group_context([name for place, name in enumerate("abcdefgh") if number & (1 << place)]):
                sent.book.log(20, "", "x" * 100)
    sent.book.settle(1)
    of_several = [m for m in sent.messages if len(m.rollouts) > 1]
    assert len([m for m in of_several if m.text]) == 2
    assert sum(m.dropped for m in of_several) == 256 - 8 - 1 - 2


def test_what_waits_can_be_sent_before_the_end_once() -> None:
    cost = len("line 00") + LOG_LINE_CHARS
    sent = Sent(limit=2 * cost)

    def log(*numbers: int) -> None:
        with in_call("a"), rollout_context("a"):
            for number in numbers:
                sent.book.log(20, "", f"line {number:02d}")
            sent.book.printed((1, ("a",)), "stdout", "rest")

    log(0)
    sent.book.send_unfinished()
    log(1, 2)
    sent.book.send_unfinished()
    log(3, 4)
    sent.book.send_unfinished()
    sent.book.settle(1)
    assert [m.text or m.dropped for m in sent.messages] == ["line 00", "rest", 5, "rest"]


def test_what_is_said_outside_of_calls_has_both_ends_too() -> None:
    cost = len("line 00") + LOG_LINE_CHARS
    sent = Sent(limit=2 * cost)
    for number in range(10):
        sent.book.log(20, "", f"line {number:02d}")
    sent.book.settle(None)
    assert [(m.call, m.text or m.dropped) for m in sent.messages] == [(None, "line 00"), (None, 8), (None, "line 09")]


def test_each_call_has_its_own_room_and_nothing_stays_of_one_that_is_over() -> None:
    sent = Sent(limit=200)
    for call in range(1, 50):
        with in_call("a", call=call), rollout_context("a"):
            sent.book.log(20, "l", "x" * 60)
            sent.book.printed((call, ("a",)), "stdout", "rest")
            sent.book.log(20, "l", "x" * 90)
        sent.book.settle(call)
    assert len([m for m in sent.messages if m.text]) == 2 * 49
    assert not sent.book._calls
