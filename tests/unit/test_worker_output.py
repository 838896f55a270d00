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
    assert [line[1] for line in sent.lines()] == [("b",), (), ()]


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


def test_beyond_the_limit_lines_are_counted_and_told_at_the_end() -> None:
    sent = Sent(limit=100)
    with in_call("a", "b"):
        for rollout in ("a", "b"):
            with rollout_context(rollout):
                for _ in range(20):
                    sent.book.log(20, "l", "x" * 9)
    assert len(sent.messages) == 20
    sent.book.settle(1)
    told = [(m.rollouts, m.dropped, m.text) for m in sent.messages[20:]]
    assert told == [(["a"], 10, ""), (["b"], 10, "")]


def test_each_call_has_its_own_room_and_nothing_stays_of_one_that_is_over() -> None:
    sent = Sent(limit=100)
    for call in range(1, 50):
        with in_call("a", call=call), rollout_context("a"):
            sent.book.log(20, "l", "x" * 60)
            sent.book.printed((call, ("a",)), "stdout", "rest")
            sent.book.log(20, "l", "x" * 60)
        sent.book.settle(call)
    assert len([m for m in sent.messages if m.text]) == 2 * 49
    assert not any((sent.book._used, sent.book._dropped, sent.book._lines))
