"""Runs the example with a judge that needs no key: `run.py [mock|local]`. The same server is the judged model."""

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmax.auth import StaticBearerAuth
from runner import Binding
from runner.limits import Limits
from runner.models import SampleAuth, parse_model
from runner.models.server import serving
from runner.packing import PackRequest, pack
from runner.plan import RunPlan
from runner.provision import Cache
from runner.report.table import show
from runner.report.value import Report
from runner.run import Run

FOLDER = Path(__file__).parent


async def judged(name: str, *, cache: Cache, examples: int = 3, group_size: int = 4) -> Report:
    """Start a server, bundle the environment for a judge at its address, and run it."""
    model = parse_model(f"mock:{FOLDER / 'mock.json'}" if name == "mock" else name, base_url=None)
    async with serving(model, cache=cache, limits=Limits()) as server:
        judge = "judge" if name == "mock" else server.model
        with tempfile.TemporaryDirectory() as folder:
            request = PackRequest(
                target=f"{FOLDER / 'judged.py'}:Judged",
                arguments={"judge_model": judge, "judge_url": server.base_url},
            )
            artifact = await pack(request, Path(folder), cache=cache)
        plan = RunPlan(
            model=parse_model(server.model, base_url=server.base_url),
            model_auth=SampleAuth(),
            # stays in this process; the bundle's judge gets headers of it for this URL and no other
            auth={"judge": Binding(StaticBearerAuth("no-key-needed"), urls=[server.base_url])},
            data=FOLDER,
            max_examples=examples,
            group_size=group_size,
        )
        return await Run(artifact, plan, cache=cache).run()


if __name__ == "__main__":
    show(asyncio.run(judged((sys.argv[1:] or ["mock"])[0], cache=Cache())), Console())
