"""Makes the lock of a bundle: resolves its requirements as for a venv, and writes down what was found."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from benchmax.bundle import BundleMetadata
from runner.errors import RequirementError
from runner.limits import Limits
from runner.provision.cache import Cache, discard
from runner.provision.confinement import Confinement
from runner.provision.document import write_lock_text
from runner.provision.hosts import Hosts
from runner.provision.installer import Installer, installer_family, make_installer
from runner.provision.interpreter import Interpreter, find_interpreter
from runner.provision.lock import LOCK_FORMAT, Lock, markers, series_of_version, with_addresses, without_user
from runner.provision.options import ProvisionOptions
from runner.provision.plan import check_series, plan_for_bundle
from runner.provision.progress import Progress, ProvisionEvent
from runner.provision.proxy import Proxy
from runner.provision.relay import relaying
from runner.provision.resolution import Resolution
from runner.provision.resolving import resolve
from runner.provision.retry import once_more_after_a_race
from runner.provision.sources import local_sources
from runner.provision.wheel import DISTRIBUTION, build_own_wheel, own_version
from runner.provision.workspace import Workspace


async def make_lock(
    metadata: BundleMetadata,
    *,
    python: str | None = None,
    cache: Cache | None = None,
    options: ProvisionOptions | None = None,
    limits: Limits | None = None,
    on_event: Callable[[ProvisionEvent], None] | None = None,
) -> tuple[Lock, tuple[str, ...]]:
    """Resolve a bundle's requirements once, for everybody who installs from the lock later.

    Args:
        metadata: The bundle's metadata.
        python: As for `provision`.
        cache: As for `provision`.
        options: How packages are looked for and chosen; `lock` and `locked` have no meaning here.
        limits: As for `provision`.
        on_event: Called with each step.

    Returns:
        The lock, and what the person who runs the bundle should know about it.

    Raises:
        ProvisionError: as for `provision`.
        RequirementError: a requirement's own address holds credentials, or something has no digest.
        SandboxUnavailableError: the sandbox level that the options name does not work here.
        UsageError: an argument cannot be meant.
    """
    if not isinstance(metadata, BundleMetadata):
        raise TypeError(f"metadata must be BundleMetadata, got {type(metadata).__name__}.")
    progress = Progress(on_event)
    cache, limits = cache or Cache(), limits or Limits()
    options = replace(options or ProvisionOptions(), lock=None, locked=False)
    check_series(metadata)
    wheel = await asyncio.to_thread(build_own_wheel)
    plan = plan_for_bundle(metadata, wheel=wheel, options=options)
    refuse_credentials(plan.requirements)
    family = installer_family(options.installer)
    interpreter = await find_interpreter(metadata.python_version.strip(), python=python, cache=cache)
    progress.tell("interpreter", f"Python {interpreter.version} at {interpreter.path}")
    confinement = await asyncio.to_thread(Confinement.at, options.sandbox, limits)
    indexes = options.indexes()
    hosts = Hosts.of(plan.requirements, options=options, indexes=indexes, lock=None)
    cache.prepare()

    async def attempt() -> tuple[Resolution, tuple[str, ...], Installer]:
        with _scratch() as scratch:
            async with relaying(options) as relay:
                space = Workspace(
                    confinement=confinement,
                    sources=local_sources(plan.requirements, options=options, indexes=indexes, lock=None),
                    interpreter=interpreter,
                    cache=cache,
                    target=scratch / "venv",
                    scratch=scratch,
                    options=options,
                    index=indexes,
                    limits=limits,
                    progress=progress,
                    relay=relay,
                    proxy=Proxy(hosts, relay) if confinement.own_network else None,
                )
                installer = make_installer(family, space)
                return *await resolve(plan, installer, space, universal=True), installer

    resolution, warnings, installer = await once_more_after_a_race(attempt, progress)
    # where ours did not fit, one from the index is in its place
    own = not plan.index_benchmax and any(
        entry["name"] == DISTRIBUTION and "archive" in entry for entry in resolution.data["packages"]
    )
    lock = _lock_of(
        resolution,
        requirements=plan.requirements,
        interpreter=interpreter,
        own_benchmax=own,
        all_platforms=installer.locks_all_platforms,
        installer=installer.title,
        options=options,
    )
    return lock, warnings


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """Make a private folder that another user can get through, and remove it whatever a build has left in it."""
    folder = Path(tempfile.mkdtemp(prefix="benchmax-lock-", dir=os.path.realpath(tempfile.gettempdir())))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        discard(folder)


def refuse_credentials(requirements: Iterable[str]) -> None:
    """Refuse requirements whose own address holds credentials, which a lock would carry to whoever has it.

    Raises:
        RequirementError: there is one.
    """
    for line in requirements:
        requirement = Requirement(line)
        if requirement.url is not None and without_user(requirement.url) != requirement.url:
            raise RequirementError(
                f"the address of {requirement.name!r} holds a user name or a password, which the lock would carry.",
                hint="Put the file on an index, and give the credentials in that index's address.",
            )


def _lock_of(
    resolution: Resolution,
    *,
    requirements: Sequence[str],
    interpreter: Interpreter,
    own_benchmax: bool,
    all_platforms: bool,
    installer: str,
    options: ProvisionOptions,
) -> Lock:
    """Make the lock of a resolution.

    Args:
        resolution: What was resolved; its paths are absolute, its addresses those of the indexes.
        requirements: The bundle's requirements, normalised.
        interpreter: What it was resolved for.
        own_benchmax: Whether benchmax in it is this installation's own, and so left out.
        all_platforms: Whether it holds for other kinds of machines, too.
        installer: Name and version of what resolved it.
        options: How packages were chosen.

    Raises:
        RequirementError: something in it has no digest, or needs credentials of its own.
    """
    entries = [
        entry for entry in resolution.data.get("packages", ()) if not (own_benchmax and entry["name"] == DISTRIBUTION)
    ]
    for entry in entries:
        if "directory" in entry:
            raise RequirementError(
                f"{entry['name']!r} comes from a folder, which has no digest and cannot be locked.",
                hint="Build a wheel of it and refer to that.",
            )
    indexes = options.indexes()
    inputs: dict[str, object] = {
        "format": LOCK_FORMAT,
        "requirements": sorted(requirements),
        "python": interpreter.series,
        "benchmax": series_of_version(own_version()),
        "index": indexes.public_url,
        "prerelease": options.prerelease,
        "installer": installer,
        "version": own_version(),
    }
    if indexes.scoped:
        inputs["extra-indexes"] = indexes.public_scoped
    if options.exclude_newer is not None:
        inputs["exclude-newer"] = options.exclude_newer.isoformat()
    if options.only_binary:
        inputs["only-binary"] = True
    here = markers(interpreter.series)
    machine = [" and ".join(f"{name} == '{here[name]}'" for name in ("sys_platform", "platform_machine"))]
    content: dict[str, Any] = {
        "lock-version": "1.0",
        **({} if all_platforms else {"environments": machine}),
        "requires-python": f"=={interpreter.series}.*",
        "created-by": "benchmax",
        "packages": with_addresses({"packages": entries}, without_user)["packages"],
        "tool": {"benchmax": inputs},
    }
    text = write_lock_text(content, comment="Made by `benchmax lock`; do not edit.")
    return Lock(content, text)
