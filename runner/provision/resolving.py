"""Finds the exact packages that meet a plan: with this installation's benchmax first, within the prerelease rule."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from runner.provision.diagnosis import InstallerFailedError
from runner.provision.installer import Installer
from runner.provision.pip import Pip
from runner.provision.plan import Plan
from runner.provision.prerelease import resolve_within_rule
from runner.provision.resolution import NOTHING, Resolution
from runner.provision.wheel import DISTRIBUTION
from runner.provision.workspace import Workspace


async def resolve(
    plan: Plan, installer: Installer, space: Workspace, *, universal: bool = False
) -> tuple[Resolution, tuple[str, ...]]:
    """Resolve a plan.

    Args:
        plan: What is wanted.
        installer: Who resolves.
        space: Where and with what.
        universal: For a lock: for all platforms, where the installer can.

    Returns:
        Exact packages, and what the person who runs the bundle should know about them.

    Raises:
        InstallerFailedError: there is no solution, or the installer could not work; it carries the reason.
        InstallTimeoutError: a deadline passed.
    """
    if plan.wheel is None or plan.index_benchmax:
        return await _resolve_lines(plan, plan.lines(None), installer, space, universal=universal)
    wheel = await asyncio.to_thread(plan.wheel.store, space.cache)
    try:
        return await _resolve_lines(plan, plan.lines(wheel), installer, space, universal=universal)
    except InstallerFailedError as error:
        failure = error.failure
        if failure.kind not in ("conflict", "no-version") or DISTRIBUTION not in failure.names:
            raise
        space.progress.tell("resolve", f"this installation's benchmax does not fit: {failure.error.message}")
        other = replace(plan, index_benchmax=True)
        try:
            resolution, warnings = await _resolve_lines(other, other.lines(None), installer, space, universal=universal)
        except InstallerFailedError as second:
            if second.failure.kind in ("unreachable", "authentication", "disk"):
                raise
            # the first reason is the one its reader can act on
            raise error from None
        taken = resolution.packages.get(DISTRIBUTION, "")
        host, why = space.index.host_of(DISTRIBUTION), failure.error.message.rstrip(".")
        return resolution, (*warnings, f"benchmax {taken} from {host} is used instead of this one: {why}.")


async def _resolve_lines(
    plan: Plan, lines: list[str], installer: Installer, space: Workspace, *, universal: bool
) -> tuple[Resolution, tuple[str, ...]]:
    if not lines:
        return NOTHING, ()
    space.progress.tell("resolve", f"resolving {len(lines)} requirements with {installer.title}")

    async def has_final(name: str) -> bool:
        if space.options.offline:
            return await _has_final_here(name, installer)
        # one answer for both installers: pip lists releases by index page, which uv has no command for
        pip = installer if isinstance(installer, Pip) else Pip(space)
        return await pip.has_final_release(name)

    return await resolve_within_rule(
        lines,
        resolve=lambda allowed, forbidden: installer.resolve(
            lines,
            allowed=allowed,
            forbidden=forbidden,
            follow_dependencies=plan.follow_dependencies,
            universal=universal,
        ),
        has_final=has_final,
        only_listed=space.options.prerelease == "explicit",
    )


async def _has_final_here(name: str, installer: Installer) -> bool:
    """Whether what can be had without the network includes a release that is no prerelease."""
    try:
        await installer.resolve([name], allowed=frozenset(), forbidden={name}, follow_dependencies=False)
    except InstallerFailedError:
        return False
    return True
