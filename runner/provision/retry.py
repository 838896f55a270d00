"""Tries again, once, what failed only because somebody else changed the installers' shared cache meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from runner.provision.diagnosis import InstallerFailedError
from runner.provision.progress import Progress

Result = TypeVar("Result")


async def once_more_after_a_race(work: Callable[[], Awaitable[Result]], progress: Progress) -> Result:
    """Run work that uses an installer, and once more from its beginning if a race is why it failed.

    Everything else that an installer fails for is the same the next time, so it is raised at once.

    Args:
        work: Leaves nothing behind when it raises.
        progress: Who hears of the second try.

    Raises:
        ProvisionError: what an installer failed for, as its reader sees it; whatever else `work` raises.
    """
    try:
        return await work()
    except InstallerFailedError as error:
        if error.failure.kind != "race":
            raise error.failure.error from None
        progress.tell("resolve", f"trying once more: {error.failure.error.message}")
    try:
        return await work()
    except InstallerFailedError as error:
        raise error.failure.error from None
