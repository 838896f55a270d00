"""`python -m runner.service.executor`: an executor that a server has started, with its settings in the environment."""

from __future__ import annotations

import argparse
import os
import sys

from runner.errors import RunnerError
from runner.service.configuration import read_settings
from runner.service.executor.process import execute


def main() -> int:
    """Be an executor; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m runner.service.executor", description="An executor of a server.")
    parser.add_argument("--watch-fd", type=int, help="descriptor of a pipe whose other end the server holds")
    arguments = parser.parse_args()
    try:
        return execute(read_settings(environ=os.environ), watch_fd=arguments.watch_fd)
    except RunnerError as error:
        print(f"benchmax executor: {error}", file=sys.stderr)  # noqa: T201 - where the server's own messages go
        return {"usage": 2}.get(error.fault, 3)


if __name__ == "__main__":
    sys.exit(main())
