"""The count of a run under way: it adds up at every moment, and stays small."""

from __future__ import annotations

from runner.report.tally import MAX_REASONS, OTHER_REASONS, Count, Tally


def adds_up(tally: Tally) -> bool:
    return tally.expected == tally.ok + tally.failed + tally.missing + tally.to_go


def test_it_adds_up_at_every_moment() -> None:
    count = Count()
    count.expected = 7
    count.keep(ok=True, reason="finished")
    count.begin(5)
    seen = [count.tally(unscored=2)]
    count.end(ok=True, reason="finished")
    seen.append(count.tally())
    count.end(ok=False, reason="out_of_luck")
    seen.append(count.tally())
    count.lose(2)
    seen.append(count.tally(unscored=9))
    count.over = True
    seen.append(count.tally())
    assert all(map(adds_up, seen))
    assert [(it.ok, it.failed, it.missing, it.to_go, it.under_way, it.unscored) for it in seen] == [
        (1, 0, 0, 6, 5, 2),
        (2, 0, 0, 5, 4, 0),
        (2, 1, 0, 4, 3, 0),
        (2, 1, 2, 2, 1, 1),
        (2, 1, 4, 0, 1, 0),
    ]
    assert {it.kept for it in seen} == {1}


def test_reasons_beyond_a_hundred_are_counted_as_one() -> None:
    count = Count()
    count.expected = 1000
    count.begin(1000)
    for number in range(1000):
        count.end(ok=False, reason=f"reason {number}")
    tally = count.tally()
    assert len(tally.reasons) == MAX_REASONS + 1
    assert tally.reasons[OTHER_REASONS] == 1000 - MAX_REASONS
    assert (tally.failed, tally.to_go) == (1000, 0)
