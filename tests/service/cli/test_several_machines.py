"""A server and an executor that share a database and a bucket, and no folder."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from runner.artifact import write_artifact
from runner.service.configuration import read_settings
from tests.integration.command_line import PROGRAM, CommandLine
from tests.service.cli.running import PATIENCE_S, serving
from tests.service.postgres import Server
from tests.service.s3 import ENVIRON, S3
from tests.service.s3 import s3 as s3
from tests.validation.test_zoo import bundle_of
from tests.validation.zoo import sound

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_a_job_of_one_machine_is_done_on_another(
    postgres: Server, s3: S3, shared_cache: Path, tmp_path: Path, benchmax: CommandLine
) -> None:
    write_artifact(bundle_of(sound, "Sound"), benchmax.cwd / "artifact")
    (benchmax.cwd / "data").mkdir()
    (benchmax.cwd / "data" / "rows.jsonl").write_text("{}\n")
    database, bucket = postgres.create(), s3.bucket()
    shared = {
        **ENVIRON,
        "BENCHMAX_SERVE_DATABASE_URL": database,
        "BENCHMAX_SERVE_BLOBS_URL": bucket.url,
        "BENCHMAX_SERVE_EXECUTORS_INSECURE_SANDBOX": "true",
    }
    with serving(tmp_path / "here", shared_cache, "--executors", "0", environ=shared) as service:
        executor = subprocess.Popen(
            [str(PROGRAM), "executor", "--data", str(tmp_path / "there")],
            env={**os.environ, **shared, "BENCHMAX_CACHE_DIR": str(shared_cache)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            key = benchmax("keys", "create", "ci", env=shared).good().strip()
            environ = {"BENCHMAX_KEY": key, "BENCHMAX_SERVER": service.url}
            assert "valid: 0 errors" in benchmax("submit", "artifact", "--data", "data", env=environ).good()
            executor.send_signal(signal.SIGTERM)
            assert executor.wait(PATIENCE_S) == 0
        finally:
            executor.kill()
            executor.wait()
        assert service.end() == 0
    assert not (tmp_path / "here" / "benchmax.db").exists()
    assert not (tmp_path / "here" / "blobs").exists()
    assert bucket.keys()
    postgres.drop(database)


@pytest.mark.parametrize("block", range(4))
def test_the_settings_that_the_page_shows_can_be_read(block: int, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "deploy.md"
    texts = [part.partition("\n```")[0] for part in page.read_text().split("```toml file=")[1:]]
    assert len(texts) == 4
    name, _, text = texts[block].partition("\n")
    (tmp_path / name).write_text(text)
    read_settings(tmp_path / name, {"MODEL_KEY": "k", "JUDGE_KEY": "k"})
