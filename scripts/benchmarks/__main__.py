"""`scripts/bench start|provision|worker|sandbox|model|gateway|report|service|service_page|all [--write] [--ours]`."""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt

from scripts.benchmarks import gateway, model, provision, report, sandbox, service, service_page, start, worker
from scripts.benchmarks.table import machine, render, write

BENCHMARKS = {
    "start": start.measure,
    "provision": provision.measure,
    "worker": worker.measure,
    "sandbox": sandbox.measure,
    "model": model.measure,
    "gateway": gateway.measure,
    "report": report.measure,
    "service": service.measure,
    "service_page": service_page.measure,
}


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Ours beside a reference, in one run.")
    parser.add_argument("which", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    parser.add_argument("--ours", action="store_true", help="worker: leave out all others, some of which take long")
    arguments = parser.parse_args()
    for name, measure in BENCHMARKS.items():
        if arguments.which in (name, "all"):
            options = {"peers": False} if name == "worker" and arguments.ours else {}
            text = render(asyncio.run(measure(**options)))
            today = dt.datetime.now(tz=dt.UTC).date()
            text = f"{text}\n\n{machine()}; medians; {today}."
            print(f"{name}\n{text}\n")
            if arguments.write:
                write(name, text)


if __name__ == "__main__":
    main()
