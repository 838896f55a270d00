"""Other ways to run the same groups in another process, each with what it needs in a venv of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runner.errors import ProvisionError
from runner.packing import metadata_for
from runner.provision import Cache, provision, provision_packages

SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
PUBLISHED_SERIES = "3.12"
"""The only one the published release supports."""
SLOW_S = 600
"""A driver that takes longer is given up."""


@dataclass(frozen=True)
class Peer:
    """One way.

    Args:
        name: In the tables.
        driver: Module of `scripts.benchmarks.drivers`.
        packages: What its venv holds; nothing for this interpreter itself.
        benchmax: Which benchmax is there, too.
        settings: Variables of its environment.
        share: Part of the groups that it runs, so that a slow one takes no longer than the others.
    """

    name: str
    driver: str
    packages: tuple[str, ...] = ()
    benchmax: Literal["ours", "none"] = "ours"
    settings: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0
    series: str = SERIES

    async def python(self, cache: Cache) -> Path | str:
        """Return its interpreter, or in one line why there is none."""
        if not self.packages:
            return Path(sys.executable)
        try:
            if self.benchmax == "none":
                return (await provision_packages(self.packages, python_series=self.series, cache=cache)).python
            return (await provision(metadata_for(self.packages, self.series), cache=cache)).python
        except ProvisionError as error:
            return f"does not install: {error.message}"


IN_PROCESS = Peer("in process", "here")
PUBLISHED = Peer(
    f"in process, published release, Python {PUBLISHED_SERIES}",
    "here",
    # the newest one that imports beside it
    ("benchmax==0.2.5", "openai<3"),
    benchmax="none",
    series=PUBLISHED_SERIES,
)
OURS = Peer("ours", "isolated")
POOLS = tuple(
    Peer(f"process pool, {method}", "futures", settings={"BENCHMARK_METHOD": method})
    for method in ("spawn", "forkserver", "fork")
)
OTHERS = (
    Peer("loky", "loky_pool", ("loky",)),
    Peer("execnet", "execnet_gateway", ("execnet",)),
    Peer("Ray actor", "ray_actor", ("ray",), share=0.2),
    Peer("verifiers' environment server", "verifiers_server", ("verifiers==0.4.0",), benchmax="none", share=0.02),
)


class Drivers:
    """Runs drivers. As a context manager it has the one folder that is on their path."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="benchmax-drivers-")

    def __enter__(self) -> Drivers:
        (Path(self._folder.name) / "scripts").symlink_to(Path(__file__).resolve().parents[1])
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def run(
        self, peer: Peer, python: Path, loads: Sequence[tuple[int, int]], **settings: str
    ) -> Mapping[str, float] | str:
        """Return what one run of a driver printed, or in one line why it printed nothing."""
        environment = {**os.environ, "PYTHONPATH": self._folder.name, **peer.settings, **settings}
        arguments = [f"{depth}:{max(2 * depth, int(groups * peer.share))}" for depth, groups in loads]
        command = [str(python), "-P", "-W", "ignore", "-m", f"scripts.benchmarks.drivers.{peer.driver}", *arguments]
        try:
            done = subprocess.run(
                command, env=environment, cwd="/", capture_output=True, text=True, timeout=SLOW_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"gave nothing within {SLOW_S} s"
        if done.returncode != 0:
            last = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
            return f"ended with {done.returncode}: {last[-1]}"
        figures: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures
