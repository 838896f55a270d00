"""Whether rollouts repeat: with the same answers of the model the same requests and rewards, at once as alone.

In the first pass all rollouts ran at the same time. They run again one after the other in another process, with the
recorded answers. Only where that differs a third pass, in a fresh process, tells chance from interference: what differs
from one lonely pass to the next is chance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.recording.comparing import Difference, first_difference
from runner.text import one_line
from runner.validation.ledger import Ledger
from runner.validation.passes import Asking, Ended, Group, Stage
from runner.validation.siblings import quoted
from runner.validation.tape import Departure, Playback


@dataclass(frozen=True, slots=True)
class Repeated:
    """A pass with recorded answers.

    Args:
        ended: How each rollout ended.
        departures: Its requests that were not the recorded ones.
        raised: What a group raised, in words.
    """

    ended: Mapping[str, object]
    departures: Sequence[Departure]
    raised: str = ""

    def deviation(self, other: Mapping[str, object]) -> tuple[str, Difference] | None:
        """Return whose end is another than in another pass, and where; `None` if all are the same."""
        for name, end in other.items():
            difference = first_difference(end, self.ended.get(name, {}))
            if difference is not None:
                return name, difference
        return None

    def same_requests(self, other: Repeated) -> bool:
        """Whether the requests of another pass departed in the same way."""
        return [one.text for one in self.departures] == [one.text for one in other.departures]


async def repeat(stage: Stage, groups: Sequence[Group], playback: Playback, asking: Asking) -> Repeated:
    """Run groups alone, with recorded answers."""
    results = await stage.alone(groups, playback, asking)
    raised = next((quoted(result.raised) for result in results if result.raised is not None), "")
    return Repeated(_ended(results), playback.departures, raised)


async def check_steadiness(
    ledger: Ledger,
    first: Sequence[Ended],
    few: int,
    again: Callable[[], Awaitable[Repeated]],
    in_a_fresh_process: Callable[[], Awaitable[Repeated]],
) -> None:
    """Find out whether rollouts repeat, and whether they disturb each other.

    Args:
        ledger: Takes down what is found.
        first: The first pass.
        few: How many of its groups run again.
        again: Makes the second one.
        in_a_fresh_process: Makes the third one, if it has to be.
    """
    began = _ended(first[:few])
    part = f"{few} of {len(first)} groups, since each takes long" if few < len(first) else ""
    with ledger.checking("replay", part):
        second = await again()
        deviation = second.deviation(began)
        if not second.departures and deviation is None and not second.raised:
            ledger.done("interleaving", part)
            return
        third = await in_a_fresh_process()
        if not third.same_requests(second):
            _request_differs(ledger, (*second.departures, *third.departures)[0])
            ledger.skip("interleaving", "requests are not the same each time")
            return
        chance = third.deviation(second.ended)
        if chance is not None or third.raised != second.raised:
            _reward_differs(ledger, chance, second.raised or third.raised)
            ledger.skip("interleaving", "rollouts do not end in the same way each time")
            return
    _interferes(ledger, deviation, second)
    ledger.done("interleaving", part)


def _request_differs(ledger: Ledger, departure: Departure) -> None:
    ledger.add(
        "request-differs",
        departure.rollout_id,
        f"with the same answers of the model it asks something else: {one_line(departure.text, 400)}",
        "Take random numbers from a generator seeded by the example; sort what comes from a set; leave out the time.",
    )


def _reward_differs(ledger: Ledger, deviation: tuple[str, Difference] | None, raised: str) -> None:
    who, text = _told(deviation, raised)
    ledger.add(
        "reward-differs",
        who,
        f"the same conversation ends otherwise each time: {text}",
        "Score by the conversation and the example alone: no time, no unseeded random numbers, no order of a set.",
    )


def _interferes(ledger: Ledger, deviation: tuple[str, Difference] | None, second: Repeated) -> None:
    if deviation is None and not second.raised:
        departure = second.departures[0]
        who, text = departure.rollout_id, f"its requests differ: {departure.text}"
    else:
        who, text = _told(deviation, second.raised)
    ledger.add(
        "interference",
        who,
        f"it ends otherwise alone than while others run: {one_line(text, 400)}",
        "Keep what belongs to one rollout out of the environment's attributes and of globals, or key it by the id of "
        "the rollout.",
    )


def _told(deviation: tuple[str, Difference] | None, raised: str) -> tuple[str, str]:
    if deviation is None:
        return "run_group", f"it raised: {raised}"
    who, difference = deviation
    where = difference.path.removeprefix("$").strip('.[]"')
    return who, f"{where} was {difference.first}, then {difference.second}"


def _ended(results: Sequence[Ended]) -> dict[str, object]:
    return {name: end for result in results for name, end in result.ended.items()}
