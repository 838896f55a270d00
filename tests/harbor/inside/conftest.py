"""What the tests share that run where Harbor is installed, once for each of its releases.

`tests/harbor/test_releases.py` starts them, with pytest and `benchmax` as they are installed there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# behind everything installed, so that `tests` is found here and `benchmax` there
sys.path.append(str(Path(__file__).parents[3]))

from tests.conftest import nothing_is_left_behind as nothing_is_left_behind
from tests.harbor.inside.folder_sandbox import FolderSandbox


@pytest.fixture(autouse=True)
def no_sandbox_is_left_behind() -> Iterator[None]:
    """Fail a test that leaves a sandbox running."""
    yield
    assert FolderSandbox.live == 0


@pytest.fixture(autouse=True)
def trials_are_written_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trials folder that is not named is one of the test's own."""
    monkeypatch.chdir(tmp_path)
