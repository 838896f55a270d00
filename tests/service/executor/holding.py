"""A process that has a private folder of an executor, with something in it, until it is killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from runner.service.executor.folder import work_folder

if __name__ == "__main__":
    with work_folder(Path(sys.argv[1])) as folder:
        (folder / "job-1").mkdir()
        print(folder, flush=True)
        signal.pause()
