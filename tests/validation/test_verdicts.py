"""What a validation makes of artifacts that are broken, of judges that are not there, and of mistakes of its caller."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import msgspec
import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import Bundle, dump_bundle
from runner import Binding, IndexUnreachableError, Limits, ProvisionOptions, SandboxUnavailableError, UsageError
from runner.artifact import METADATA_NAME, PICKLE_NAME, write_artifact
from runner.models import parse_model
from runner.provision import Cache
from runner.record import PhaseEvent
from runner.report.page import validation_page
from runner.sandbox import probe
from runner.validation import ValidationPlan, Verdict, validate
from runner.validation.codes import CHECKS
from runner.variables import SecretVariables
from tests.conftest import require
from tests.integration.local_index import LocalIndex
from tests.integration.model_process import RunningModel
from tests.validation.test_zoo import bundle_of, codes, plan_of
from tests.validation.zoo import bundled, failing, rollouts, sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

Judging = Callable[..., Any]
NOBODY = "http://127.0.0.1:9/v1"
"""The discard port, where nobody answers."""


@pytest.fixture
def judging(mock: RunningModel, shared_cache: Path, tmp_path: Path) -> Judging:
    data = tmp_path / "data"
    data.mkdir()

    async def judging(
        source: Bundle | Path | str, *, cache: Cache | None = None, keep: bool = False, **options: Any
    ) -> Verdict:
        plan = replace(plan_of(mock, data), **options)
        return await validate(source, plan, cache=cache or Cache(shared_cache), keep=keep)

    return judging


def skipped(verdict: Verdict) -> list[str]:
    return [check.name for check in verdict.checks if check.state == "skipped"]


# -- artifacts ------------------------------------------------------------------------------------------------


class Innocent:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("echo harm > /tmp/harm",))


def damaged(bundle: Bundle, folder: Path, **files: bytes) -> Path:
    write_artifact(bundle, folder)
    for name, data in files.items():
        (folder / {"metadata": METADATA_NAME, "pickled": PICKLE_NAME}[name]).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ({"metadata": b"{"}, "artifact"),
        ({"metadata": b'{"python_version": 3}'}, "artifact"),
        ({"pickled": b""}, "artifact"),
        ({"pickled": b"\x80\x05K\x01"}, "broken-pickle"),
        ({"pickled": pickle.dumps((Innocent(), {}))}, "dangerous-pickle"),
    ],
    ids=["no JSON", "other metadata", "empty", "cut", "starts a program"],
)
async def test_a_broken_artifact_is_judged_without_anything_of_it_being_run(
    damage: dict[str, bytes], code: str, judging: Judging, tmp_path: Path
) -> None:
    verdict = await judging(damaged(bundle_of(sound, "Sound"), tmp_path / "artifact", **damage))
    assert codes(verdict) == [code]
    assert verdict.exit_code == 1
    assert verdict.check("artifact").state == "failed"
    assert "load" in skipped(verdict)
    assert verdict.rollouts == 0


async def test_a_pickle_that_was_cut_in_the_middle_is_broken(judging: Judging, tmp_path: Path) -> None:
    bundle = bundle_of(sound, "Sound")
    cut = bundle.pickled[: len(bundle.pickled) * 6 // 10]
    assert codes(await judging(damaged(bundle, tmp_path / "artifact", pickled=cut))) == ["broken-pickle"]


async def test_requirements_that_nobody_has_are_told(judging: Judging, cache: Cache, index: LocalIndex) -> None:
    bundle = dump_bundle(sound.Sound, pip_dependencies=["nobody-has-this"], local_modules=[sound])
    verdict = await judging(bundle, cache=cache, provisioning=ProvisionOptions(index_url=index.url))
    assert codes(verdict) == ["requirement"]
    assert "nobody-has-this" in verdict.findings[0].message
    assert verdict.check("packages").state == "failed"


async def test_a_package_that_cannot_be_built_is_told(judging: Judging, cache: Cache, index: LocalIndex) -> None:
    index.add_sdist("unbuildable", "1.0", "raise SystemExit('no compiler')\n")
    bundle = dump_bundle(sound.Sound, pip_dependencies=["unbuildable"], local_modules=[sound])
    verdict = await judging(bundle, cache=cache, provisioning=ProvisionOptions(index_url=index.url))
    assert codes(verdict) == ["build"]


@pytest.fixture
def installed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that is installed where the bundle is made, and nowhere else."""
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "only_here.py").write_text("def answer(): return 42\n")
    monkeypatch.syspath_prepend(str(site))
    import only_here  # type: ignore[import-not-found]

    yield only_here
    del sys.modules["only_here"]


async def test_a_module_that_only_the_author_has_is_named(judging: Judging, installed_here: ModuleType) -> None:
    class Needing(sound.Sound):
        answer = staticmethod(installed_here.answer)

    # `dump_bundle` would not let it pass
    metadata = bundle_of(sound, "Sound").metadata
    cloudpickle.register_pickle_by_value(sound)
    try:
        bundle = Bundle(cloudpickle.dumps((Needing, {})), metadata)
    finally:
        cloudpickle.unregister_pickle_by_value(sound)
    verdict = await judging(bundle)
    assert codes(verdict) == ["undeclared-dependency"]
    assert "only_here" in verdict.findings[0].message
    assert verdict.check("load").state == "failed"


class Counting(sound.Sound):
    """Loads in two processes, and in no third, which is needed since its rewards are chance."""

    def __init__(self, notes: str) -> None:
        with Path(notes).open("a") as file:
            file.write("loaded\n")
        if len(Path(notes).read_text().splitlines()) > 2:
            raise ValueError("two are enough")

    async def score(self, *_: Any) -> dict[str, float]:
        return {"chance": float(int.from_bytes(os.urandom(3)))}


async def test_a_worker_that_fails_late_is_a_finding_as_well(judging: Judging, tmp_path: Path) -> None:
    arguments = {"notes": str(tmp_path / "notes")}
    bundle = dump_bundle(Counting, constructor_args=arguments, local_modules=[sound, sys.modules[__name__]])
    verdict = await judging(bundle)
    assert codes(verdict) == ["does-not-load"]
    assert "two are enough" in verdict.findings[0].message
    assert verdict.exit_code == 1


# -- secrets --------------------------------------------------------------------------------------------------


class Keyed(sound.Sound):
    def __init__(self, api_key: str = "", notes: str = "") -> None:
        self.notes = notes


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"api_key": "c0ffee-c0ffee-c0ffee"}, ["secret-captured"]),
        ({"api_key": "not-needed"}, []),
        ({"notes": "see https://me:s3cr3t-s3cr3t@host/x"}, ["secret-captured"]),
        ({"notes": f"{'long text ' * 1000}sk-0123456789abcdefghijklmn"}, ["secret-captured"]),
        ({"notes": "sk-0123456789abcdefghijklmn", "api_key": "sk-0123456789abcdefghijklmn"}, ["secret-captured"]),
        ({"notes": "the value of a secret: open-sesame-42"}, ["secret-captured"]),
    ],
    ids=["named", "placeholder", "URL", "in a long text", "twice", "given by the caller"],
)
async def test_a_secret_is_found_once_and_never_shown(
    arguments: dict[str, object], found: list[str], judging: Judging
) -> None:
    modules = [sound, sys.modules[__name__]]
    bundle = dump_bundle(Keyed, constructor_args=arguments, local_modules=modules)
    verdict = await judging(bundle, secrets=SecretVariables({"SESAME": "open-sesame-42"}))
    assert codes(verdict) == found
    shown = verdict.to_json().decode()
    for secret in ("c0ffee", "s3cr3t", "0123456789", "open-sesame"):
        assert secret not in shown


# -- what cannot be judged ------------------------------------------------------------------------------------


async def test_there_is_no_verdict_without_the_judge_that_is_asked(judging: Judging) -> None:
    verdict = await judging(bundle_of(failing, "Judged"))
    assert codes(verdict) == []
    assert (verdict.judgement, verdict.exit_code, verdict.ok) == ("unjudged", 3, False)
    assert "'judge'" in verdict.check("siblings").why
    assert verdict.check("dataset").state == "passed"


async def test_there_is_no_verdict_when_the_judge_does_not_answer(judging: Judging, mock: RunningModel) -> None:
    require(probe.network_blocker() is None, "a network of its own")
    bundle = bundle_of(failing, "JudgedElsewhere")
    auth = {"judge": Binding(StaticBearerAuth("any"), urls=[failing.ELSEWHERE])}
    verdict = await judging(bundle, auth=auth, sandbox=None)
    assert (codes(verdict), verdict.judgement) == ([], "unjudged")
    assert "'judge' did not answer" in verdict.check("siblings").why


async def test_a_model_that_is_down_leaves_what_can_be_judged_without(judging: Judging) -> None:
    verdict = await judging(bundle_of(sound, "Sound"), model=parse_model("m", base_url=NOBODY))
    assert (codes(verdict), verdict.judgement) == ([], "unjudged")
    assert "does not answer" in verdict.check("siblings").why
    assert [verdict.check(name).state for name in ("load", "dataset", "close")] == ["passed"] * 3
    again = await judging(bundle_of(bundled, "KeyInAConstant"), model=parse_model("m", base_url=NOBODY))
    assert (codes(again), again.exit_code) == (["secret-captured"], 1)


async def test_the_fault_of_this_machine_is_no_verdict_unless_there_is_one_already(
    judging: Judging, cache: Cache
) -> None:
    nowhere = ProvisionOptions(offline=True)
    for name, module in (("Sound", sound), ("KeyInAConstant", bundled)):
        bundle = dump_bundle(getattr(module, name), pip_dependencies=["somewhere-else"], local_modules=[sound, module])
        if name == "Sound":
            with pytest.raises(IndexUnreachableError, match="offline") as caught:
                await judging(bundle, cache=cache, provisioning=nowhere)
            assert caught.value.fault == "host"
        else:
            verdict = await judging(bundle, cache=cache, provisioning=nowhere)
            assert codes(verdict) == ["secret-captured"]
            assert "could not be tried here" in verdict.check("load").why


# -- mistakes of the caller -----------------------------------------------------------------------------------


async def test_the_callers_mistakes_raise(judging: Judging, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no artifact at"):
        await judging(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="'bogus' is not known"):
        await judging(bundle_of(sound, "Sound"), sandbox="bogus")
    with pytest.raises(UsageError, match="does not exist"):
        ValidationPlan(data=tmp_path / "nowhere")
    with pytest.raises(SandboxUnavailableError, match="leaves a worker the machine's network"):
        await judging(bundle_of(sound, "Sound"), sandbox="off", network="model-only")


@pytest.mark.parametrize(
    ("options", "level", "network"),
    [
        ({}, "namespaces", "model-only"),
        ({"sandbox": "namespaces"}, "namespaces", "model-only"),
        ({"sandbox": "off"}, "off", "open"),
        ({"sandbox": "auto"}, "auto", "open"),
        ({"network": "none"}, "namespaces", "none"),
    ],
)
def test_the_strongest_confinement_is_taken_unless_a_weaker_one_is_named(
    options: dict[str, str], level: str, network: str, tmp_path: Path
) -> None:
    plan = ValidationPlan(data=tmp_path, **options)  # type: ignore[arg-type]
    assert (plan.level, plan.network_mode) == (level, network)


# -- views ----------------------------------------------------------------------------------------------------


async def test_a_verdict_survives_its_json(judging: Judging) -> None:
    verdict = await judging(bundle_of(sound, "Sound"))
    again = Verdict.from_json(verdict.to_json())
    assert again == verdict
    assert again.format == 1
    assert [check.name for check in again.checks] == [*CHECKS]
    assert again.model is not None
    assert again.dataset is not None
    assert again.dataset.examples == 6


async def test_the_first_pass_is_kept_as_the_report_of_a_run_if_it_is_to_be(judging: Judging) -> None:
    verdict = await judging(bundle_of(sound, "Sound"), keep=True)
    assert Verdict.from_json(verdict.to_json()) == verdict
    report = verdict.report
    assert report is not None
    assert [len(group.outcomes) for group in report.groups] == [2, 2, 2, 2]
    first = [msgspec.structs.replace(one, began=None) for one in report.groups[0].outcomes]
    assert first == verdict.siblings
    assert (report.expected, report.ok) == (8, 8)
    assert verdict.rollouts > 8
    assert report.bundle == verdict.bundle
    assert report.sandbox.credentials == "gateway"
    for outcome in report.outcomes:
        assert outcome.transcript
        assert outcome.model_use is not None
        assert outcome.began is not None
        assert 0 <= outcome.began <= report.timings["rollouts_s"]
    alone = await judging(bundle_of(sound, "Sound"))
    assert (alone.judgement, alone.report, len(alone.siblings)) == ("valid", None, 2)
    assert len(alone.to_json()) < len(verdict.to_json()) / 2


async def test_what_groups_raised_is_kept_with_where_it_came_from(judging: Judging) -> None:
    verdict = await judging(bundle_of(rollouts, "GroupRaises"), keep=True)
    report = verdict.report
    assert report is not None
    assert report.groups[0].error is not None
    assert "Traceback" in report.groups[0].traceback
    assert b"raised instead of giving outcomes" in validation_page(verdict)


async def test_what_rollouts_said_beyond_the_limit_is_left_out_and_counted(judging: Judging) -> None:
    whole = await judging(bundle_of(sound, "Sound"), keep=True)
    less = await judging(bundle_of(sound, "Sound"), keep=True, limits=Limits(report_bytes=50_000))
    assert whole.report is not None
    assert less.report is not None
    assert not [one for one in whole.report.outcomes if one.transcript_omitted_bytes]
    left_out = [one for one in less.report.outcomes if one.transcript_omitted_bytes and not one.transcript]
    assert 0 < len(left_out) < 8


async def test_progress_is_told_by_phases(mock: RunningModel, shared_cache: Path, tmp_path: Path) -> None:
    phases: list[str] = []

    def on_event(event: Any) -> None:
        if isinstance(event, PhaseEvent):
            phases.append(event.phase)

    plan = plan_of(mock, tmp_path)
    await validate(bundle_of(sound, "Sound"), plan, cache=Cache(shared_cache), on_event=on_event)
    assert [phase for phase in phases if phase in ("dataset", "rollouts", "checks")] == [
        "dataset",
        "rollouts",
        "checks",
    ]
