"""The gateway with one session, as a rollout has it.

Run as a program with a base URL: prints its own and the key, serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

from runner.gateway.exchange import ModelCall
from runner.gateway.gateway import Gateway
from runner.limits import Limits
from runner.redaction import Redactor


class Real:
    """The real credential."""

    async def headers(self, call: ModelCall) -> Mapping[str, str]:
        """Return it."""
        return {"Authorization": "Bearer sk-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"}

    async def rejected(self, call: ModelCall, headers: Mapping[str, str]) -> bool:
        """There is no other."""
        return False


async def serve() -> None:
    """Serve on a free port of the loopback interface."""
    redactor = Redactor()
    redactor.learn_headers({"Authorization": "Bearer sk-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c"})
    limits = Limits(model_calls_per_rollout=10**9)
    gateway = Gateway(limits, clean=redactor.clean)
    origin = await gateway.listen()
    session = gateway.open("rollout", gateway.upstream(sys.argv[1], Real()), rollout_id="rollout")
    print(f"{origin}{session.path} {session.key}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await gateway.aclose()


if __name__ == "__main__":
    asyncio.run(serve())
