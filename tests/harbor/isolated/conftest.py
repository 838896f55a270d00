"""What these tests share."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harbor.isolated.harbor_lab import hanging
from tests.integration.conftest import shared_cache as shared_cache


@pytest.fixture(autouse=True)
def nothing_of_a_sandbox_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Fail a test that leaves a process or a folder of a sandbox behind."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    left = [path.name for path in folder.glob("benchmax-*")]
    shutil.rmtree(folder)
    assert (hanging(), left) == (set(), [])
