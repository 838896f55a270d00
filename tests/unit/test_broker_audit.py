"""The trail of every answer and refusal: in order, counted for ever, kept within bounds, and without any value."""

from __future__ import annotations

from runner.broker import AuditCount, Binding
from runner.broker.audit import NO_URL, OTHER
from runner.limits import AUDIT_ENTRIES, AUDIT_PLACES, MAX_AUDIT_CHARS, Limits
from tests.unit.broker_lab import BASE, JUDGE, Setting, Source, bound, judged, own


def counts(setting: Setting) -> set[tuple[str | None, str, str, int]]:
    return {(found.binding, found.origin, found.verdict, found.count) for found in setting.broker.audit_counts}


async def test_every_answer_and_refusal_is_in_the_trail_in_order() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    await setting.refusal(own(model="other"))
    await setting.headers(bound())
    await setting.refusal(bound("https://evil.example"))
    trail = [(entry.binding, entry.rollout_id, entry.model, entry.verdict) for entry in setting.broker.audit]
    assert trail == [
        (None, "r1", "m", "answered"),
        (None, "r1", "other", "refused"),
        ("judge", "label", "judge-model", "answered"),
        ("judge", "label", "judge-model", "refused"),
    ]
    assert [entry.answered for entry in setting.broker.audit] == [True, False, True, False]
    assert [bool(entry.reason) for entry in setting.broker.audit] == [False, True, False, True]
    assert all(entry.at > 1.7e9 for entry in setting.broker.audit)


async def test_everything_is_counted_by_binding_place_and_verdict() -> None:
    setting = judged(JUDGE)
    for _ in range(3):
        await setting.headers(own())
    await setting.headers(bound(JUDGE + "/more"))
    await setting.refusal(bound("https://evil.example:8443/v1"))
    await setting.refusal(bound("no url"))
    assert setting.broker.audit_counts[0] == AuditCount(
        binding=None, origin="https://model.example", verdict="answered", count=3
    )
    assert counts(setting) == {
        (None, "https://model.example", "answered", 3),
        ("judge", "https://judge.example", "answered", 1),
        ("judge", "https://evil.example:8443", "refused", 1),
        ("judge", NO_URL, "refused", 1),
    }


async def test_answers_do_not_push_refusals_out() -> None:
    setting = Setting(limits=Limits(headers_per_rollout=10 * AUDIT_ENTRIES))
    await setting.refusal(own(model="other"))
    for _ in range(AUDIT_ENTRIES + 5):
        setting.desk.ask(own())
    audit = setting.broker.audit
    assert len(audit) == AUDIT_ENTRIES + 1
    assert audit[0].verdict == "refused"
    assert counts(setting) == {
        (None, "https://model.example", "refused", 1),
        (None, "https://model.example", "answered", AUDIT_ENTRIES + 5),
    }


async def test_places_beyond_the_number_that_is_told_apart_are_counted_together() -> None:
    setting = judged(JUDGE)
    await setting.headers(own())
    for number in range(AUDIT_PLACES + 10):
        setting.desk.ask(bound(f"https://evil-{number}.example"))
    found = counts(setting)
    assert len(found) == AUDIT_PLACES + 1
    assert (None, OTHER, "refused", 11) in found
    assert (None, "https://model.example", "answered", 1) in found


async def test_texts_of_an_entry_are_short() -> None:
    await (setting := Setting()).refusal(own(model="m" * 5000, base_url="https://x/" + "u" * 5000))
    (entry,) = setting.broker.audit
    for text in (entry.model, entry.base_url, entry.reason):
        assert len(text) <= MAX_AUDIT_CHARS
    assert "characters left out" in entry.base_url


async def test_no_entry_holds_a_value_whatever_the_worker_writes_into_its_requests() -> None:
    setting = Setting({"judge": Binding(Source(), urls=[JUDGE]), "provided-token": Binding(Source(), urls=[JUDGE])})
    await setting.headers(own())
    await setting.headers(bound())
    for secret in ("own-token", "provided-token"):
        await setting.ask(own(base_url=f"https://{secret}.example/{secret}"))
        await setting.ask(own(model=f"m-{secret}"))
        await setting.ask(own(rollout=f"r-{secret}"))
        await setting.ask(bound(rollout_id=f"label-{secret}", model=secret))
        await setting.ask(bound(base_url=f"{JUDGE}/{secret}"))
        await setting.ask(bound(binding=secret))
        # a value across the place where the text is cut is not left as two halves
        await setting.ask(own(model="m" * (MAX_AUDIT_CHARS // 2 - 20) + secret + "m" * MAX_AUDIT_CHARS))
    assert len(setting.broker.audit) == 16
    shown = f"{setting.broker.audit}{setting.broker.audit_counts}"
    for secret in ("own-token", "provided-token"):
        assert secret not in shown
    assert "[redacted]" in shown


async def test_an_entry_names_the_place_in_the_workers_words() -> None:
    setting = Setting()
    await setting.headers(own(base_url=BASE + "/"))
    assert setting.broker.audit[0].base_url == BASE + "/"
