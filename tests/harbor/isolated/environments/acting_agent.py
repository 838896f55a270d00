"""An agent that does what the id of its rollout says, up to the first hyphen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext


class ActingAgent(BaseAgent):
    """What it writes to /app/answer decides what the verifier does."""

    @staticmethod
    def name() -> str:
        return "acting"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to install."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        rollout_id = self.logs_dir.parent.name
        act = rollout_id.partition("-")[0]
        match act:
            case "idle":
                return
            case "hang":
                await environment.exec(f"exec -a benchmax-hangs-for-{rollout_id} sleep 600")
            case "raises":
                raise LookupError("the agent gave up")
            case "ends":
                await environment.exec("kill -9 -1")
            case "checks":
                await self._check(environment)
                act = "right"
            case _:
                pass
        await environment.exec(f"echo {act} > answer")

    async def _check(self, environment: BaseEnvironment) -> None:
        """Use everything that Harbor's agents and trials use of an environment, by the names that they use."""

        async def said(command: str, **options: object) -> str:
            result = await environment.exec(command=command, **options)  # type: ignore[arg-type]
            assert result.return_code == 0, result
            return (result.stdout or "").strip()

        # of the Dockerfile, and of the call
        assert await said("pwd") == "/app/inner"
        assert await said("pwd", cwd="/tmp") == "/tmp"
        assert await said("echo $OF_THE_FILE $OF_THE_CALL", env={"OF_THE_CALL": "b"}) == "a b"
        assert await said("echo $OF_THE_FILE", env={"OF_THE_FILE": "c"}) == "c"
        assert await said("cat /app/copied/deep/file.txt") == "copied"
        assert await said("stat -c %a /app/copied.sh") == "750"
        # who runs it
        assert await said("id -un; id -u") == "root\n0"
        assert await said("id -un; echo $HOME", user="ada") == "ada\n/home/ada"
        assert await said("touch mine && stat -c %U mine", user="ada", cwd="/tmp") == "ada"
        with environment.with_default_user("ada"):  # type: ignore[attr-defined]
            assert await said("id -un") == "ada"
        # how it ends
        failed = await environment.exec("echo out; echo err >&2; exit 3")
        assert (failed.return_code, failed.stdout, failed.stderr) == (3, "out\n", "err\n")
        late = await environment.exec("echo before; sleep 600", timeout_sec=1)
        assert (late.return_code, late.stdout) == (124, "before\n")
        assert "timed out after 1 s" in (late.stderr or "")
        flood = await environment.exec("yes | head -c 50000000")
        assert 7_000_000 < len(flood.stdout or "") < 9_000_000
        assert "bytes left out" in (flood.stdout or "")
        # what one command starts, another finds
        await said("mkfifo /tmp/pipe; (cat /tmp/pipe > /tmp/got; echo done > /tmp/ended) > /dev/null 2>&1 &")
        await said("echo word > /tmp/pipe; until [ -e /tmp/ended ]; do sleep 0.01; done; grep -q word /tmp/got")
        together = await asyncio.gather(*(said(f"echo {number}") for number in range(20)))
        assert together == [str(number) for number in range(20)]
        # files
        here = Path(self.logs_dir)
        (here / "sent").mkdir()
        (here / "sent" / "run.sh").write_text("#!/bin/bash\necho ran\n")
        (here / "sent" / "run.sh").chmod(0o755)
        await environment.upload_dir(source_dir=here / "sent", target_dir="/srv/sent")
        assert await said("/srv/sent/run.sh") == "ran"
        await environment.upload_file(source_path=here / "sent" / "run.sh", target_path="/srv/new/place.sh")
        assert await said("/srv/new/place.sh") == "ran"
        await environment.upload_file(source_path=str(here / "sent" / "run.sh"), target_path="/tmp")
        assert await environment.is_file("/tmp/run.sh")
        assert await environment.is_dir(path="/srv/sent", user="root")
        assert not await environment.is_dir("/srv/sent/run.sh")
        assert not await environment.is_file("/srv/none")
        await said("mkdir -p out/deep && echo back > out/deep/file && ln -s /etc/passwd out/link")
        await environment.download_dir(source_dir="/app/inner/out", target_dir=here / "back")
        assert {path.name for path in (here / "back").rglob("*")} == {"deep", "file"}
        await environment.download_file(source_path="/app/inner/out/deep/file", target_path=here / "one" / "file")
        assert (here / "one" / "file").read_text() == "back\n"
        for fetch in (environment.download_file, environment.download_dir):
            try:
                await fetch("/srv/none", here / "none")
            except FileNotFoundError:
                continue
            raise AssertionError("something came of nothing")
