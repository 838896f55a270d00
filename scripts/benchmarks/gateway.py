"""The model gateway beside a direct call, a bare pass-through of the same stack, and a published proxy.

All of them are programs of their own, before the same server, and are asked by the same client. Each round asks all in
turn, so that what else the machine does hits them alike; figures are medians of the rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import ProvisionError
from runner.provision import Cache, provision_packages
from scripts.benchmarks.table import Row

ROUNDS = 5
CALLS = 400
FIRSTS = 100
THROUGHPUT = (2_000, 32)
"""Calls, and how many at a time."""
STREAMS = 1_000
WHAT = ("latency", "first", "throughput")
PROXY = ("litellm[proxy]",)
PROXY_SERIES = "3.12"
PROXY_SHARE = 0.05
"""Part of the calls that the published proxy is asked, so that it takes no longer than the others."""
START_S = 120.0


@dataclass(frozen=True)
class Place:
    """Something that answers chat completions."""

    name: str
    url: str
    key: str
    process: subprocess.Popen[str]
    share: float = 1.0


@dataclass
class Figures:
    """What was measured at each place, by its name."""

    latency: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    throughput: dict[str, list[float]] = field(default_factory=dict)

    def median(self, what: str, name: str) -> float:
        """Return one median."""
        found: dict[str, list[float]] = getattr(self, what)
        return statistics.median(found[name])


async def measure() -> list[Row]:
    """Measure and return rows."""
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(_program("model", "scripts.benchmarks.drivers.model_server"))
        bare = stack.enter_context(_program("bare", "scripts.benchmarks.drivers.pass_through", model.url))
        ours = stack.enter_context(_program("ours", "scripts.benchmarks.drivers.gateway_server", model.url))
        proxy, reason = await _published(stack, model.url)
        places = [model, bare, ours, *([proxy] if proxy is not None else [])]
        figures = Figures()
        for number in range(ROUNDS + 1):
            for place in places:
                # the first round warms them up
                _ask(place, figures if number else Figures(), ("throughput",) if place is proxy else WHAT)
        rows = [*_against_bare(figures), *_against_proxy(figures, proxy, reason)]
        return [*rows, _memory(model, ours, bare)]


def _ask(place: Place, figures: Figures, whats: Sequence[str]) -> None:
    count, at_once = THROUGHPUT
    numbers = {"latency": [CALLS], "first": [FIRSTS], "throughput": [int(count * place.share), at_once]}
    for what in whats:
        command = _client_command(what, place, numbers[what])
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = float(json.loads(done.stdout.splitlines()[-1]))
        getattr(figures, what).setdefault(place.name, []).append(found)


def _client_command(what: str, place: Place, numbers: Sequence[int]) -> list[str]:
    module = "scripts.benchmarks.drivers.model_client"
    return [sys.executable, "-m", module, what, place.url, place.key, *map(str, numbers)]


def _against_bare(figures: Figures) -> list[Row]:
    rows = []
    for what, title, most in (
        ("latency", "added to a call (µs)", 1.3),
        ("first", "added to the first token of a stream (µs)", 1.0),
    ):
        direct = figures.median(what, "model")
        mine, theirs = (figures.median(what, name) - direct for name in ("ours", "bare"))
        goal = f"≤ {most:g}"
        shown = f"{theirs:,.0f} (bare pass-through; direct {direct:,.0f} in all)"
        rows.append(Row(title, f"{mine:,.0f}", shown, mine / theirs, goal, mine <= most * theirs))
    mine, theirs = (figures.median("throughput", name) for name in ("ours", "bare"))
    title = f"calls/s, {THROUGHPUT[1]} at a time"
    rows.append(Row(title, f"{mine:,.0f}", f"{theirs:,.0f} (bare pass-through)", mine / theirs, "", None))
    return rows


def _against_proxy(figures: Figures, proxy: Place | None, reason: str) -> list[Row]:
    title = f"calls/s, {THROUGHPUT[1]} at a time"
    if proxy is None:
        return [Row(title, "", reason, None, "", None)]
    mine, theirs = (figures.median("throughput", name) for name in ("ours", proxy.name))
    return [Row(title, f"{mine:,.0f}", f"{theirs:,.0f} ({proxy.name})", mine / theirs, "≥ 3", mine >= 3 * theirs)]


def _memory(model: Place, ours: Place, bare: Place) -> Row:
    mine, theirs = (_memory_of_streams(model, place) / STREAMS / 1024 for place in (ours, bare))
    title = f"memory of one of {STREAMS:,} streams at once (KiB)"
    return Row(title, f"{mine:.0f}", f"{theirs:.0f} (bare pass-through)", mine / theirs, "≤ 64 KiB", mine <= 64)


def _memory_of_streams(model: Place, place: Place) -> int:
    """Private bytes that many open streams take, the first ones not counted, since those load modules."""
    _hold(model, place, 10)
    before = _private_bytes(place.process.pid)
    return _hold(model, place, STREAMS) - before


def _hold(model: Place, place: Place, count: int) -> int:
    command = _client_command("streams", place, [count])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        if client.stdout.readline().strip() != "held":
            raise RuntimeError(f"{place.name} does not hold {count} streams")
        held = _private_bytes(place.process.pid)
        assert model.process.stdin is not None
        model.process.stdin.write("\n")
        model.process.stdin.flush()
        client.stdout.read()
    if client.returncode:
        raise RuntimeError(f"{place.name} did not end {count} streams")
    return held


def _private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) * 1024


@contextlib.contextmanager
def _program(name: str, module: str, *arguments: str) -> Iterator[Place]:
    """Run one of the drivers: it prints its URL, and perhaps a key, and serves until its standard input ends."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url, *key = process.stdout.readline().split()
        yield Place(name, url, key[0] if key else "unused", process)
        process.communicate()


async def _published(stack: contextlib.ExitStack, model_url: str) -> tuple[Place | None, str]:
    """Return the published proxy, or in one line why there is none."""
    try:
        venv = await provision_packages(PROXY, python_series=PROXY_SERIES, cache=Cache())
    except ProvisionError as error:
        return None, f"does not install: {error.message}"
    program = venv.python.parent / "litellm"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmax-proxy-")))
    key, config, log = f"sk-{secrets.token_urlsafe(24)}", folder / "config.yaml", folder / "log"
    # JSON is YAML, too
    config.write_text(json.dumps(_proxy_config(model_url, key)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(venv.python), str(program), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    output = stack.enter_context(log.open("w"))
    environment = {**os.environ, "LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    process = stack.enter_context(
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, env=environment)  # noqa: ASYNC220
    )
    stack.callback(process.terminate)
    if not _answers(f"http://127.0.0.1:{port}/health/liveliness", process):
        last = [line for line in log.read_text().splitlines() if line.strip()] or ["no output"]
        return None, f"{PROXY[0]} does not start: {last[-1][:200]}"
    return Place("litellm", f"http://127.0.0.1:{port}/v1", key, process, PROXY_SHARE), ""


def _proxy_config(model_url: str, key: str) -> Mapping[str, object]:
    model = {"model": "openai/m", "api_base": model_url, "api_key": "real"}
    return {
        "model_list": [{"model_name": "m", "litellm_params": model}],
        "litellm_settings": {"num_retries": 0},
        "general_settings": {"master_key": key},
    }


def _answers(url: str, process: subprocess.Popen[str]) -> bool:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False
