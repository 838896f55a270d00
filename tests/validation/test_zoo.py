"""Each environment of the zoo has one defect, which is found, once, and nothing else is."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmax.auth import StaticBearerAuth
from benchmax.bundle import Bundle, dump_bundle
from runner import Binding, Limits
from runner.models import SampleAuth, parse_model
from runner.provision import Cache
from runner.validation import ValidationPlan, Verdict, validate
from runner.validation.codes import CHECKS, KINDS
from tests.integration.model_process import RunningModel
from tests.validation.zoo import bundled, conversations, datasets, failing, rollouts, sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

MODULES = (bundled, datasets, rollouts, conversations, failing)
ZOO = [
    (module, name)
    for module in MODULES
    for name, found in inspect.getmembers(module, inspect.isclass)
    if issubclass(found, sound.Sound) and found.__module__ == module.__name__ and found.finds
]


def bundle_of(module: ModuleType, name: str) -> Bundle:
    return dump_bundle(getattr(module, name), local_modules=[sound, rollouts, conversations, module])


def plan_of(mock: RunningModel, folder: Path, *, rollout_s: float = 20.0, **options: Any) -> ValidationPlan:
    limits = Limits(rollout_s=rollout_s, dataset_s=20.0, cancel_grace_s=0.2, shutdown_s=2.0)
    return ValidationPlan(
        model=parse_model("mock", base_url=mock.base_url),
        model_auth=SampleAuth(),
        data=folder,
        limits=limits,
        **{"sandbox": "off", **options},
    )


def codes(verdict: Verdict) -> list[str]:
    return [finding.code for finding in verdict.findings]


def judged(mock: RunningModel) -> dict[str, Binding]:
    return {"judge": Binding(StaticBearerAuth("any"), urls=[mock.base_url])}


@pytest.mark.parametrize(
    ("module", "name"), ZOO, ids=[f"{module.__name__.rpartition('.')[2]}-{name}" for module, name in ZOO]
)
async def test_the_one_defect_is_found_once(
    module: ModuleType, name: str, mock: RunningModel, shared_cache: Path, tmp_path: Path
) -> None:
    environment = getattr(module, name)
    hangs = environment.finds in ("rollout-timeout", "failure-hangs")
    plan = plan_of(mock, tmp_path, rollout_s=2.0 if hangs else 20.0, auth=judged(mock))
    verdict = await validate(bundle_of(module, name), plan, cache=Cache(shared_cache))
    assert codes(verdict) == [environment.finds], "\n".join(map(str, verdict.findings))
    finding = verdict.findings[0]
    severity = KINDS[environment.finds].severity
    assert finding.severity == severity
    assert verdict.judgement == ("invalid" if severity == "error" else "valid")
    assert finding.message
    assert "\n" not in finding.message
    assert finding.fix.endswith(".")
    assert [check.name for check in verdict.checks] == [*CHECKS]


async def test_nothing_is_found_of_what_is_sound(mock: RunningModel, shared_cache: Path, tmp_path: Path) -> None:
    verdict = await validate(bundle_of(sound, "Sound"), plan_of(mock, tmp_path), cache=Cache(shared_cache))
    assert codes(verdict) == [], "\n".join(map(str, verdict.findings))
    assert verdict.ok
    skipped = {check.name: check.why for check in verdict.checks if check.state != "passed"}
    assert skipped == {"judge outage": "no judge was asked"}
    assert [outcome.ok for outcome in verdict.siblings] == [True, True]


async def test_a_judge_that_fails_in_the_open_is_sound(mock: RunningModel, shared_cache: Path, tmp_path: Path) -> None:
    bundle = bundle_of(failing, "Judged")
    verdict = await validate(bundle, plan_of(mock, tmp_path, auth=judged(mock)), cache=Cache(shared_cache))
    assert codes(verdict) == [], "\n".join(map(str, verdict.findings))
    assert verdict.check("judge outage").state == "passed"


def test_every_kind_of_finding_has_its_environment_or_its_test() -> None:
    shown = {getattr(module, name).finds for module, name in ZOO}
    elsewhere = {"artifact", "broken-pickle", "dangerous-pickle", "requirement", "build"}
    assert shown | elsewhere == {*KINDS}
