"""What the published client of the hosted platform asks, answered under the service's own address.

Upload URLs, batches of rollouts as a stream, model sessions and model calls, the token of its login. The clients are
made elsewhere, so their page is the contract: names and shapes here are theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI

from runner.service.database import keys
from runner.service.http.state import ServiceState
from runner.service.platform import gateway, rollouts, storage, token
from runner.service.platform.models import Models


def routers(state: ServiceState) -> list[APIRouter]:
    """Return the routes. Model servers and sessions live as long as the application that has them.

    Args:
        state: The service's parts.
    """

    async def admission(bearer: str) -> str | None:
        found = await state.database.read(keys.find, bearer)
        return None if found is None else found.id

    models = Models(state.settings, admission, state.redactor.clean)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await models.aclose()

    living = APIRouter(lifespan=lifespan)
    return [living, token.router(), storage.router(state), rollouts.router(state), gateway.router(state, models)]
