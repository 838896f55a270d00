"""What tests of the service's commands share: one service with executors, and a place for commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.cli import main
from tests.integration.command_line import CommandLine, Finished
from tests.integration.conftest import shared_cache as shared_cache
from tests.service.cli.running import Service, serving


@pytest.fixture(scope="module")
def service(shared_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with two executors, in a sandbox that works everywhere."""
    data = tmp_path_factory.mktemp("service") / "data"
    with serving(data, shared_cache, "--executors", "2", "--insecure-sandbox") as running:
        yield running


@pytest.fixture
def benchmax(shared_cache: Path, tmp_path: Path) -> CommandLine:
    """Runs commands."""
    return CommandLine(shared_cache, tmp_path)


@pytest.fixture
def here(
    benchmax: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Finished]:
    """Runs commands in this process: those that end soon and start nothing."""

    def run(*arguments: str, **variables: str) -> Finished:
        with monkeypatch.context() as changed:
            changed.chdir(benchmax.cwd)
            for name, value in benchmax.environment(variables).items():
                changed.setenv(name, value)
            return Finished(main([*arguments]), *capsys.readouterr())

    return run
