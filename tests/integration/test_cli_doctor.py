"""What `benchmax doctor` finds on this machine, and what it says of one that lacks something."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from runner.cli import doctor
from runner.errors import RunnerError
from runner.provision.cache import Cache
from runner.sandbox.machine import this_machine
from runner.sandbox.policy import Level
from runner.sandbox.probe import availability, network_blocker, strongest

pytestmark = pytest.mark.integration


def diagnose(capsysbinary: pytest.CaptureFixture[bytes]) -> dict[str, Any]:
    assert doctor.execute(argparse.Namespace(json=True)) == 0
    written = capsysbinary.readouterr()
    found: dict[str, Any] = json.loads(written.out)
    assert found["format"] == 1
    assert b"sandbox" in written.err
    return found


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BENCHMAX_CACHE_DIR", str(tmp_path / "cache"))


def test_each_level_and_the_running_interpreter_are_found(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    found = diagnose(capsysbinary)
    by_topic = {(finding["topic"], finding["name"].split(" ")[0]): finding for finding in found["findings"]}
    for level in get_args(Level):
        assert by_topic["sandbox", level]["available"] == availability(level).available
    assert by_topic["network", "model-only,"]["available"] == (network_blocker() is None)
    assert found["auto"] == strongest()
    assert [f["name"] for f in found["findings"] if "auto takes this" in f["name"]] == [
        f"{strongest()} (auto takes this)"
    ]
    series = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert by_topic["python", series]["available"]
    assert by_topic["installer", "uv"]["available"]
    assert "GB free" in by_topic["cache", "folder"]["fact"]
    assert {topic for topic, _ in by_topic} == {"sandbox", "network", "limits", "python", "installer", "cache"}
    for finding in found["findings"]:
        assert finding["fact"], finding
        if finding["topic"] == "sandbox" and not finding["available"]:
            assert finding["remedy"], finding


def test_a_machine_without_bubblewrap_is_told_which_package(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = replace(this_machine(), bubblewrap=None, landlock=2)
    monkeypatch.setattr(doctor, "this_machine", lambda: machine)
    found = {finding.name: finding for finding in doctor.sandbox_findings()}
    assert found["namespaces"].fact == "the program bwrap is not installed"
    assert "the package bubblewrap" in found["namespaces"].remedy
    assert found["model-only, none"].fact == found["namespaces"].fact
    assert "version 2 of Landlock" in found["landlock"].fact
    assert found["off (auto takes this)"].available


def test_without_any_interpreter_nothing_can_be_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "SERIES", ("3.99",))
    with pytest.raises(RunnerError, match="nothing can be run here: no python is available"):
        doctor.execute(argparse.Namespace(json=False))
    assert "3.99" in capsys.readouterr().out


def test_a_cache_that_is_full_says_how_to_make_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LOW_DISK_BYTES", 10**18)
    finding = doctor.cache_finding(Cache(tmp_path / "cache"))
    assert finding.available
    assert finding.remedy == "benchmax cache prune --older-than 30d"
