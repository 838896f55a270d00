"""What is said where a sandbox is to be made and its own program is not there any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner import process
from runner.errors import RunnerError
from runner.process import Process
from runner.sandbox import probe
from runner.sandbox.fitting import fit
from runner.sandbox.levels import choose_policy
from runner.sandbox.machine import this_machine
from tests.conftest import require

pytestmark = pytest.mark.integration


async def test_that_bubblewrap_cannot_be_executed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(probe.availability("namespaces").available, "bubblewrap and user namespaces")
    policy = fit(choose_policy("namespaces", "open"), this_machine(), private=tmp_path, readable=[])
    machine = replace(this_machine(), bubblewrap="/no/such/bwrap")
    monkeypatch.setattr(process, "this_machine", lambda: machine)
    with pytest.raises(RunnerError, match=r"cannot execute the command: FileNotFoundError.*/no/such/bwrap"):
        await Process.start(
            ["/bin/true"],
            env={},
            cwd=tmp_path,
            policy=policy,
            # as many as a worker is given
            descriptors=dict.fromkeys(range(3, 8), 0),
            stdout=lambda _: None,
            stderr=lambda _: None,
        )
