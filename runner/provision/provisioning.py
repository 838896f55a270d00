"""From a bundle's metadata, or a list of requirements, to a venv: found in the cache or built."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from benchmax.bundle import BundleMetadata
from runner.errors import InstallTimeoutError, UsageError
from runner.limits import Limits
from runner.provision.build import build
from runner.provision.cache import Cache
from runner.provision.candidates import running_series
from runner.provision.confinement import Confinement
from runner.provision.hosts import Hosts
from runner.provision.installer import installer_family
from runner.provision.interpreter import find_interpreter
from runner.provision.options import ProvisionOptions
from runner.provision.plan import Plan, check_requirements, check_series, plan_for_bundle
from runner.provision.progress import Progress, ProvisionEvent
from runner.provision.proxy import Proxy
from runner.provision.relay import relaying
from runner.provision.retry import once_more_after_a_race
from runner.provision.sources import local_sources
from runner.provision.venv import Venv
from runner.provision.wheel import build_own_wheel
from runner.provision.workspace import Workspace


async def provision(
    metadata: BundleMetadata,
    *,
    python: str | None = None,
    cache: Cache | None = None,
    options: ProvisionOptions | None = None,
    limits: Limits | None = None,
    on_event: Callable[[ProvisionEvent], None] | None = None,
) -> Venv:
    """Return a venv in which a worker can run a bundle, building it if the cache has none.

    Reads nothing of the bundle but its metadata. Safe to call at once from many tasks and processes: equal requests
    share one build. When cancelled, everything that was started is ended and nothing half-built is left in use.

    Args:
        metadata: The bundle's metadata.
        python: Path of an interpreter, or a version, instead of a free search; its series must be the bundle's.
        cache: Where venvs are kept; by default the user's cache folder.
        options: How packages are looked for and chosen, and a lock to install from.
        limits: Deadlines `install_s` and `install_silence_s`; by default those of `Limits`.
        on_event: Called with each step.

    Raises:
        IncompatibleBundleError: the bundle's Python or benchmax series cannot be run here.
        InterpreterNotFoundError: no interpreter of the bundle's series is installed.
        RequirementError: the requirements cannot be met.
        BuildError: a source distribution could not be built.
        IndexUnreachableError: the package index does not answer or refuses access.
        InstallTimeoutError: a deadline passed.
        CacheError: the cache cannot be written.
        SandboxUnavailableError: the sandbox level that the options name does not work here.
        UsageError: an argument cannot be meant.
    """
    if not isinstance(metadata, BundleMetadata):
        raise TypeError(f"metadata must be BundleMetadata, got {type(metadata).__name__}.")
    check_series(metadata)
    options = options or ProvisionOptions()
    wheel = await asyncio.to_thread(build_own_wheel)
    plan = await asyncio.to_thread(plan_for_bundle, metadata, wheel=wheel, options=options)
    return await _find_or_build(
        plan,
        series=metadata.python_version.strip(),
        python=python,
        cache=cache,
        options=options,
        limits=limits,
        on_event=on_event,
    )


async def provision_packages(
    requirements: Sequence[str],
    *,
    python: str | None = None,
    python_series: str | None = None,
    follow_dependencies: bool = True,
    cache: Cache | None = None,
    options: ProvisionOptions | None = None,
    limits: Limits | None = None,
    on_event: Callable[[ProvisionEvent], None] | None = None,
) -> Venv:
    """Return a venv that holds the given packages and nothing of benchmax, building it if the cache has none.

    Args:
        requirements: PEP 508 requirements.
        python: As for `provision`.
        python_series: Series of the interpreter, such as `3.12`; by default that of this process.
        follow_dependencies: Whether the requirements of the requirements are installed too.
        cache: As for `provision`.
        options: As for `provision`, without a lock.
        limits: As for `provision`.
        on_event: As for `provision`.

    Raises:
        ProvisionError: as for `provision`.
        SandboxUnavailableError: as for `provision`.
        UsageError: an argument cannot be meant.
    """
    if options is not None and (options.lock is not None or options.locked):
        raise UsageError("packages are installed without a lock; only bundles have one.", hint="Leave out lock.")
    plan = Plan(requirements=check_requirements(requirements), follow_dependencies=follow_dependencies)
    return await _find_or_build(
        plan,
        series=python_series or running_series(),
        python=python,
        cache=cache,
        options=options,
        limits=limits,
        on_event=on_event,
    )


async def _find_or_build(
    plan: Plan,
    *,
    series: str,
    python: str | None,
    cache: Cache | None,
    options: ProvisionOptions | None,
    limits: Limits | None,
    on_event: Callable[[ProvisionEvent], None] | None,
) -> Venv:
    progress = Progress(on_event)
    cache = cache or Cache()
    options, limits = options or ProvisionOptions(), limits or Limits()
    family = installer_family(options.installer)
    interpreter = await find_interpreter(series, python=python, cache=cache)
    progress.tell("interpreter", f"Python {interpreter.version} at {interpreter.path}")
    key = await asyncio.to_thread(plan.key, interpreter, installer=family, options=options)

    def found() -> Venv | None:
        venv = cache.find(key)
        if venv is not None:
            progress.tell("cached", f"venv {key} with {len(venv.packages)} packages")
        return venv

    if venv := found():
        return venv
    confinement = await asyncio.to_thread(Confinement.at, options.sandbox, limits)
    indexes, lock = options.indexes(), None if plan.lock is None else plan.lock.data
    hosts = Hosts.of(plan.requirements, options=options, indexes=indexes, lock=lock)
    cache.prepare()

    def on_wait() -> None:
        progress.tell("install", f"waiting for another process that builds venv {key}")

    async def attempt() -> Venv:
        with cache.attempt(key) as (target, scratch):
            async with relaying(options) as relay:
                space = Workspace(
                    confinement=confinement,
                    sources=local_sources(plan.requirements, options=options, indexes=indexes, lock=lock),
                    interpreter=interpreter,
                    cache=cache,
                    target=target,
                    scratch=scratch,
                    options=options,
                    index=indexes,
                    limits=limits,
                    progress=progress,
                    relay=relay,
                    proxy=Proxy(hosts, relay) if confinement.own_network else None,
                )
                return await build(plan, key=key, family=family, space=space)

    async with contextlib.AsyncExitStack() as holding:
        try:
            async with asyncio.timeout(limits.install_s):
                await holding.enter_async_context(cache.lock(key, on_wait))
        except TimeoutError:
            # its own limits end it, unless it is stopped or others were given to it
            raise InstallTimeoutError(
                f"another process has held venv {key} for {limits.install_s:.3g} s, and has not finished it.",
                hint="End it if it hangs; its place is then taken. Otherwise raise the limit install_s.",
            ) from None
        # whoever held the lock may have built it
        if venv := found():
            return venv
        return await once_more_after_a_race(attempt, progress)
