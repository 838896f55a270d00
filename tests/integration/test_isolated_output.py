"""Whatever a bundle prints, wherever it writes it, the protocol is not disturbed and the text is kept, bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runner import Limits, RecordEvent, isolate
from runner.provision import Cache
from tests.integration.environments import noisy, probing
from tests.integration.isolation import bundled, requests_for, run_one, texts

pytestmark = pytest.mark.integration


@pytest.fixture
def probe(shared_cache: Path, tmp_path: Path) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(**options: Any) -> AsyncIterator[Any]:
        records: list[Any] = []

        def on_event(event: Any) -> None:
            if isinstance(event, RecordEvent):
                records.append(event.record)

        bundle = bundled(probing, "Probing")
        async with isolate(bundle, cache=Cache(shared_cache), on_event=on_event, **options) as env:
            yield env, await env.create_dataset("eval", tmp_path), records

    return opened


async def test_ten_megabytes_at_import_raw_bytes_and_input_do_no_harm_and_are_kept_bounded(
    shared_cache: Path, tmp_path: Path
) -> None:
    limits = Limits(output_bytes=100_000)
    async with isolate(bundled(noisy, "Noisy"), cache=Cache(shared_cache), limits=limits) as env:
        dataset = await env.create_dataset("eval", tmp_path)
        outcomes = await env.run_group(requests_for(dataset[0], 2))
        output = env.output()
    assert texts(outcomes) == ["end of file"] * 2
    assert output["stdout"].startswith("line 000000 ")
    assert "bytes left out" in output["stdout"]
    assert "raw bytes" in output["stdout"][-300:]
    assert "raw bytes on descriptor 2" in output["stderr"]
    assert len(output["stdout"]) < 101_000


async def test_prints_inside_a_rollout_are_attributed_to_it(probe: Any) -> None:
    async with probe() as (env, dataset, records):
        await run_one(env, dataset, "print", count=3)
        output = env.output()
    for record in records:
        assert [(line.stream, line.text) for line in record.logs] == [
            ("stdout", f"printed by {record.rollout_id}"),
            ("stderr", "to stderr"),
        ]
    assert "printed by" not in output["stdout"]


async def test_raw_bytes_and_programs_write_to_the_captured_stream(probe: Any) -> None:
    async with probe() as (env, dataset, _):
        assert texts(await run_one(env, dataset, "raw")) == [None]
        output = env.output()
    assert "raw bytes on descriptor 1" in output["stdout"]
    assert "from a program" in output["stdout"]


async def test_input_is_at_its_end_at_once(probe: Any) -> None:
    async with probe() as (env, dataset, _):
        assert texts(await run_one(env, dataset, "input")) == ["end of file"]


async def test_the_standard_streams_can_still_be_reconfigured(probe: Any) -> None:
    async with probe() as (env, dataset, _):
        assert texts(await run_one(env, dataset, "reconfigure")) == ["<stdout>"]


async def test_what_one_rollout_prints_is_bounded_and_the_rest_counted(probe: Any) -> None:
    async with probe(limits=Limits(rollout_log_bytes=5)) as (env, dataset, records):
        await run_one(env, dataset, "print")
    assert [line.text for line in records[0].logs] == ["… 2 lines left out …"]
    assert records[0].dropped_logs == 2


async def test_the_workers_surroundings_are_built_from_empty(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "OPENAI_API_KEY", "SSH_AUTH_SOCK", "FOO", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "canary-value")
    monkeypatch.setenv("https_proxy", "http://user:canary-value@proxy.example:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ssl/cert.pem")
    async with probe() as (env, dataset, _):
        (environ,) = texts(await run_one(env, dataset, "environ"))
        (files,) = texts(await run_one(env, dataset, "files"))
    assert environ is not None
    assert files is not None
    variables = dict(line.split("=", 1) for line in environ.splitlines())
    assert "canary-value" not in environ
    assert variables["https_proxy"] == "http://proxy.example:3128"
    assert variables["SSL_CERT_FILE"] == "/etc/ssl/cert.pem"
    assert variables["PYTHONHASHSEED"] == "0"
    assert variables["HOME"].startswith(variables["TMPDIR"].rpartition("/")[0])
    assert variables["HOME"] != str(Path.home())
    assert str(Path.cwd()) not in files
