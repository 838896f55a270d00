"""What installers print becomes events with phases and bytes."""

from __future__ import annotations

import pytest

from runner.provision import progress as progress_module
from runner.provision.progress import Progress, ProvisionEvent


def heard(*lines: str, steps_only: bool = False) -> list[ProvisionEvent]:
    events: list[ProvisionEvent] = []
    progress = Progress(events.append)
    for line in lines:
        progress.line("install", line, steps_only=steps_only)
    return events


def test_uvs_downloads_are_added_up_and_counted_when_complete() -> None:
    events = heard("Downloading numpy (2.0MiB)", "Downloading scipy (1.0MiB)", " Downloaded scipy", " Downloaded numpy")
    assert [event.phase for event in events] == ["download"] * 4
    assert [event.bytes_total for event in events] == [2 * 2**20, 3 * 2**20, 3 * 2**20, 3 * 2**20]
    assert [event.bytes_done for event in events] == [0, 0, 2**20, 3 * 2**20]
    assert events[2].message == "Downloaded scipy · 1.0 of 3.1 MB"


def test_pips_downloads_come_one_after_the_other() -> None:
    events = heard(
        "  Downloading numpy-2.3.3-cp312-cp312-manylinux_2_27_x86_64.whl (16.6 MB)",
        "  Downloading zss-1.2.0.tar.gz (9.8 kB)",
        "  Downloading six-1.17.0-py2.py3-none-any.whl.metadata (512 bytes)",
    )
    assert [event.phase for event in events] == ["download"] * 3
    assert [event.bytes_done for event in events] == [0, 16_600_000, 16_609_800]
    assert events[-1].bytes_total == 16_610_312


@pytest.mark.parametrize(
    "line",
    [
        "   Building pycosat==0.6.6",
        "      Built pycosat==0.6.6",
        "   Building mine @ file:///folder/mine",
        "  Building wheel for pycosat (pyproject.toml): started",
        "  Installing build dependencies: started",
        "  Preparing metadata (pyproject.toml): started",
    ],
)
def test_builds_from_source_are_a_phase(line: str) -> None:
    (event,) = heard(line, steps_only=True)
    assert event.phase == "build"
    assert event.message == line.strip()


def test_other_lines_keep_the_phase_they_were_printed_in() -> None:
    (event,) = heard("Prepared 5 packages in 1.60s")
    assert (event.phase, event.bytes_total) == ("install", None)


def test_of_standard_output_only_steps_are_told() -> None:
    assert heard("[[packages]]", "Collecting numpy", 'name = "Downloading (5 MB"', steps_only=True) == []


def test_what_is_written_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_REPORT_S", 0.0)
    events: list[ProvisionEvent] = []
    progress = Progress(events.append)
    for count in (1_000, 9_000_000, 9_000_001, 30_000_000, 0, 8_000_000):
        progress.written("install", count)
    assert [event.bytes_written for event in events] == [9_000_000, 30_000_000, 8_000_000]
    assert events[0].message == "9 MB written so far"


def test_between_two_reports_some_time_passes() -> None:
    events: list[ProvisionEvent] = []
    progress = Progress(events.append)
    progress.written("install", 9_000_000)
    assert events == []
