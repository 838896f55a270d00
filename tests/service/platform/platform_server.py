"""The service as its clients meet it: `benchmax serve` with an executor, and the published client's way of asking."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from benchmax.bundle import Bundle, bundle_digest
from runner.service.database import keys
from runner.service.database.database import Database

PATIENCE_S: Final = 120.0
SCOPES: Final = ("submit", "read", "models")
PROGRAM: Final = Path(sys.executable).with_name("benchmax")


@dataclass(frozen=True)
class Served:
    """A running service.

    Args:
        url: Its address.
        database_url: Its database.
        process: The server.
    """

    url: str
    database_url: str
    process: subprocess.Popen[bytes]

    def key(self, tenant: str = "acme", scopes: Sequence[str] = SCOPES, **quotas: int) -> str:
        """Make a key; return its secret."""
        database = Database.open(self.database_url)
        try:
            _, secret = database.run_now(
                keys.create,
                tenant=tenant,
                name="tests",
                scopes={*scopes},
                max_bytes=quotas.get("max_bytes", 1 << 30),
                max_jobs=quotas.get("max_jobs", 10),
                max_running=quotas.get("max_running", 4),
                requests_per_minute=quotas.get("requests_per_minute", 6000),
            )
        finally:
            database.close()
        return secret

    def client(self, secret: str | None = None) -> httpx.Client:
        """Return what asks with a key."""
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False)


@contextmanager
def serving(folder: Path, cache: Path, variables: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Serve for the length of the context, with one executor.

    Args:
        folder: For its data and its log.
        cache: Where venvs are kept.
        variables: Further settings, as variables without their prefix.
    """
    data = folder / "data"
    given = {f"BENCHMAX_SERVE_{name}": value for name, value in (variables or {}).items()}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--data", str(data), "--executors", "1", "--json"],
            env={**os.environ, **given, "BENCHMAX_CACHE_DIR": str(cache)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        line = process.stdout.readline() if ready else b""
        assert line, (folder / "server.log").read_text()
        yield Served(json.loads(line)["url"], f"sqlite:///{data / 'benchmax.db'}", process)
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            process.send_signal(number)
            try:
                process.wait(PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        process.stdout.close()


def upload(client: httpx.Client, path: str, content: bytes, mime: str) -> str:
    """Send a file as the published client does; return the path that it passes on."""
    asked = client.get("/v1/storage/upload-url", params={"path": path, "mimeType": mime})
    assert asked.status_code in (200, 201), asked.text
    place = asked.json()
    # without the key, which would be somebody else's business
    put = httpx.put(
        place["uploadUrl"],
        content=content,
        headers={"Content-Type": mime, "x-ms-blob-type": "BlockBlob"},
        timeout=PATIENCE_S,
        trust_env=False,
    )
    assert put.status_code < 400, put.text
    blob_path: str = place["blobPath"]
    return blob_path


def upload_artifact(client: httpx.Client, bundle: Bundle, run_name: str = "run") -> dict[str, str]:
    """Send a bundle; return what a batch names it by."""
    folder = f"envs/{run_name}/{bundle_digest(bundle)[:16]}"
    return {
        "env_cls_path": upload(client, f"{folder}/env-cls.pkl", bundle.pickled, "application/octet-stream"),
        "env_metadata_path": upload(
            client, f"{folder}/env-metadata.json", bundle.metadata.to_json_bytes(), "application/json"
        ),
    }


def upload_rows(client: httpx.Client, run_name: str, **splits: Sequence[Mapping[str, Any]]) -> str:
    """Send the rows of splits; return the client's own prefix for them."""
    files = {f"{split}.jsonl": "\n".join(map(json.dumps, rows)).encode() + b"\n" for split, rows in splits.items()}
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + files[name] for name in sorted(files)))
    prefix = f"datasets/{run_name}/{digest.hexdigest()[:8]}"
    for name, content in files.items():
        upload(client, f"{prefix}/{name}", content, "application/jsonl")
    return prefix


def batch_of(env: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Return the body that the published client sends for a batch."""
    plain = {"env": {**env}, "model": {"name": "m"}, "split": "eval", "max_examples": 1, "group_size": 2}
    return {**plain, "max_in_flight": 2, "max_context_tokens": 2048, **more}


def stream_batch(client: httpx.Client, body: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Ask for a batch; return its events, and all lines as they came, until the published client would stop."""
    events, lines = [], []
    with client.stream("POST", "/v1/rollout/batch/stream", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            lines.append(line)
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                if events[-1]["event"] == "batch_completed":
                    break
    return events, lines


def until(reached: Any, *, what: str) -> None:
    """Wait until something observable is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.02)
