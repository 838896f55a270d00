"""A bare pass-through of the gateway's stack: starlette and uvicorn, httpx upstream, a credential swapped, no more.

Run as a program with a base URL: prints its own, serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

UPSTREAM = sys.argv[1] if len(sys.argv) > 1 else ""
CLIENT: httpx.AsyncClient


async def chat(request: Request) -> StreamingResponse:
    """Pass one call on."""
    upstream = CLIENT.build_request(
        "POST",
        f"{UPSTREAM}/chat/completions",
        content=await request.body(),
        headers={"authorization": "Bearer real", "content-type": request.headers.get("content-type", "")},
    )
    answer = await CLIENT.send(upstream, stream=True)
    return StreamingResponse(
        answer.aiter_raw(),
        answer.status_code,
        {"content-type": answer.headers.get("content-type", "")},
        background=BackgroundTask(answer.aclose),
    )


@contextlib.asynccontextmanager
async def _client() -> AsyncIterator[None]:
    global CLIENT
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(timeout=300, limits=limits) as CLIENT:
        yield


async def serve() -> None:
    """Serve on a free port of the loopback interface."""
    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False, backlog=2048, http="h11")
    server = uvicorn.Server(config)
    async with _client():
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110 - it offers nothing to wait for
            await asyncio.sleep(0.01)
        print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(serve())
