"""The answers of a first pass, given again."""

from __future__ import annotations

import pytest

from runner.gateway.exchange import UpstreamError
from runner.recording.octets import Octets
from runner.recording.traffic import Failure, RecordedCall
from runner.validation.tape import Playback, Playbacks, Taping
from tests.unit.recording_lab import Model, Said, asking, whole


def recorded(number: int, text: str, answer: str, **options: object) -> RecordedCall:
    given = {
        "attempt": 1,
        "rollout_id": "r",
        "number": number,
        "method": "POST",
        "route": "chat/completions",
        "request": Octets(text=asking(text=text).body.decode()),
        "began": float(number),
        "seconds": 0.0,
        "status": 200,
        "answer": Octets(text=answer),
        **options,
    }
    return RecordedCall(**given)  # type: ignore[arg-type]


def playing(*calls: RecordedCall) -> Playback:
    return Playbacks(calls, "http://model/v1").new(lambda text: text)


NOBODY = Model()


async def test_the_same_requests_have_the_same_answers_in_whichever_order_they_come() -> None:
    playback = playing(recorded(0, "one", "1"), recorded(1, "two", "2"))
    upstream = playback.upstream("r", None, NOBODY)
    assert await whole(await upstream.send(asking(0, text="two"))) == b"2"
    assert await whole(await upstream.send(asking(1, text="one"))) == b"1"
    assert playback.departures == []


async def test_another_request_has_the_next_answer_and_is_noted() -> None:
    playback = playing(recorded(0, "one", "1"))
    assert await whole(await playback.upstream("r", None, NOBODY).send(asking(text="other"))) == b"1"
    (departure,) = playback.departures
    assert departure.text == 'r, call 0, at $.messages[0].content: first "one", then "other"'


async def test_a_request_too_many_has_no_answer_and_is_noted() -> None:
    playback = playing()
    with pytest.raises(UpstreamError, match="no further answer"):
        await playback.upstream("r", None, NOBODY).send(asking(3))
    assert playback.departures[0].text == "r makes one more call, number 3"


async def test_a_binding_is_answered_by_what_was_asked_whoever_asks() -> None:
    playback = playing(
        recorded(0, "score", "mine", binding="judge"), recorded(0, "score", "hers", binding="judge", rollout_id="s")
    )
    for who, expected in (("r", b"mine"), ("s", b"hers"), ("t", b"mine")):
        answer = await playback.upstream(who, "judge", NOBODY).send(asking(text="score", binding="judge"))
        assert await whole(answer) == expected


async def test_a_new_question_under_a_binding_is_asked() -> None:
    playback = playing()
    live = Model(Said(b"7"), Said(status=500), UpstreamError("down", code="upstream_unreachable"))
    upstream = playback.upstream("r", "judge", live)
    assert await whole(await upstream.send(asking(binding="judge"))) == b"7"
    assert playback.unanswered == 0
    assert (await upstream.send(asking(binding="judge"))).status == 500
    with pytest.raises(UpstreamError, match="down"):
        await upstream.send(asking(binding="judge"))
    assert playback.unanswered == 2


async def test_a_failure_is_given_again() -> None:
    failure = Failure(message="it broke off", code="upstream_closed", status=502, retry=True)
    upstream = playing(
        recorded(0, "one", "hal", failure=failure), recorded(1, "two", "", status=0, failure=failure)
    ).upstream("r", None, NOBODY)
    with pytest.raises(UpstreamError, match="it broke off"):
        await whole(await upstream.send(asking(text="one")))
    with pytest.raises(UpstreamError, match="it broke off"):
        await upstream.send(asking(text="two"))


async def test_what_is_taped_can_be_played() -> None:
    tape = Taping(clean=lambda text: text, base_url="http://model/v1")
    assert (
        await whole(await tape.upstream("r", None, Model(Said(b"4", b"2"))).send(asking(text="six by seven"))) == b"42"
    )
    playback = playing(*tape.calls)
    assert await whole(await playback.upstream("r", None, NOBODY).send(asking(text="six by seven"))) == b"42"
    assert playback.departures == []


async def test_what_cannot_be_kept_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.validation.tape.TAPE_BYTES", 100)
    tape = Taping(clean=lambda text: text, base_url="http://model/v1")
    upstream = tape.upstream("r", None, Model(Said(b"4" * 100), Said(b"2")))
    await whole(await upstream.send(asking()))
    with pytest.raises(UpstreamError, match="keeps at most 100 bytes"):
        await upstream.send(asking(1))
    assert len(tape.calls) == 1
