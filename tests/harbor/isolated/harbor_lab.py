"""What these tests share: artifacts for each release of Harbor, tasks, and what to look for when all is over."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runner import Artifact, InterpreterNotFoundError
from runner.packing import PackRequest, pack
from runner.provision import Cache
from runner.provision.interpreter import find_interpreter
from tests.conftest import require
from tests.harbor.test_releases import SERIES, requirements_for

ENVIRONMENTS: Final = Path(__file__).parent / "environments"
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "harbor"
RELEASES: Final = ("oldest", "newest")
HANGS: Final = "benchmax-hangs-for"
"""How a process is called that hangs in a sandbox, before the id of its rollout."""

CONFIG: Final = """
schema_version = "1.0"
[agent]
timeout_sec = {seconds}
[verifier]
timeout_sec = {seconds}
[environment]
network_mode = "no-network"
"""

DOCKERFILE: Final = """
FROM debian:12
ENV OF_THE_FILE=a
COPY copied /app/copied/
COPY --chmod=750 run.sh /app/copied.sh
WORKDIR /app
WORKDIR inner
"""

VERIFY: Final = """#!/bin/bash
cat /app/inner/answer
case "$(cat /app/inner/answer)" in
  right) echo '{"reward": 1, "style": 0.5}' > /logs/verifier/reward.json ;;
  slow) sleep 600 ;;
  mute) exit 1 ;;
  *) echo '{"reward": 0, "style": 0.25}' > /logs/verifier/reward.json ;;
esac
"""


async def packed(target: str, release: str, folder: Path, cache: Cache, **arguments: object) -> Artifact:
    """Bundle a class for the oldest or the newest release of Harbor, on the Python that both need."""
    try:
        await find_interpreter(SERIES, python=None, cache=cache)
    except InterpreterNotFoundError:
        require(None, f"Python {SERIES}")
    request = PackRequest(
        target=target, requirements=requirements_for(release), python=SERIES, arguments=arguments, verify=False
    )
    return await pack(request, folder, cache=cache)


def make_task(folder: Path, *, files: Mapping[str, str] | None = None, without: str = "", seconds: float = 90) -> None:
    """Write a task; `files` replace or add to its own, `without` is left out; agent and verifier have `seconds`."""
    texts = {
        "task.toml": CONFIG.format(seconds=seconds),
        "instruction.md": f"Write something to the file answer. This is {folder.name}.",
        "environment/Dockerfile": DOCKERFILE,
        "environment/copied/deep/file.txt": "copied\n",
        "environment/run.sh": "#!/bin/bash\n",
        "tests/test.sh": VERIFY,
        **(files or {}),
    }
    for name, text in texts.items():
        if name != without:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    (folder / "tests" / "test.sh").chmod(0o755)


def rollout_prefix(act: str) -> str:
    """What the ids of a test's rollouts begin with; another run of the tests has others."""
    return f"{act}-{os.getpid()}"


def hanging() -> set[int]:
    """Processes that hang in sandboxes of this run of the tests."""
    found = set()
    named = f"{HANGS}-{rollout_prefix('hang')}".encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(named):
                found.add(int(entry.name))
        except OSError:
            # it has ended meanwhile
            continue
    return found
