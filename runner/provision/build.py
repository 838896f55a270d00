"""Builds one venv: resolves, builds what has no wheel, installs, and declares it whole last of all.

No program runs inside the venv once a package is in it: a `.pth` file would run with it. The venv's interpreter is
asked only while it is still empty; afterwards what is installed is read from the files.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from runner.errors import ProvisionError
from runner.provision.building import built
from runner.provision.contents import record
from runner.provision.empty_venv import make_empty_venv, site_packages_of
from runner.provision.installer import make_installer
from runner.provision.lock import LOCK_NAME, markers, own_entry
from runner.provision.moving import moving_warnings
from runner.provision.plan import Plan
from runner.provision.resolution import Resolution
from runner.provision.resolving import resolve
from runner.provision.skeleton import Skeleton
from runner.provision.venv import Venv
from runner.provision.workspace import Workspace


async def build(plan: Plan, *, key: str, family: Literal["uv", "pip"], space: Workspace) -> Venv:
    """Build the venv of a key; the key's lock must be held.

    Args:
        plan: What to install.
        key: Name of the entry.
        family: Which installer to use.
        space: Where and with what.

    Raises:
        InstallerFailedError: the installer failed; it carries the reason.
        ProvisionError: one of its subclasses says why there is no venv.
    """
    installer = make_installer(family, space)
    resolution, warnings = await _locked(plan, space) if plan.lock else await resolve(plan, installer, space)
    ready = await built(resolution, installer, space)
    python, site_packages = space.target / "bin" / "python", site_packages_of(space.target, space.interpreter)
    with space.cache.boundary():
        make_empty_venv(space.target, space.interpreter)
        (space.target / LOCK_NAME).write_text(resolution.lock, encoding="utf-8")
        skeleton = Skeleton.of(space.target)
    if resolution.packages:
        space.progress.tell("install", f"installing {_packages(len(resolution.packages))} with {installer.title}")
        await installer.install(ready, python=python)
    with space.cache.boundary():
        await asyncio.to_thread(skeleton.check, site_packages)
    packages, more_warnings = await asyncio.to_thread(_installed, site_packages, space)
    _check_complete(resolution, packages)
    venv = Venv(
        key=key,
        path=space.target,
        python=python,
        python_version=space.interpreter.series,
        base_python=space.interpreter.path,
        base_prefix=space.interpreter.prefix,
        packages=packages,
        installer=installer.title,
        warnings=(*warnings, *more_warnings, *(() if plan.lock else moving_warnings(plan.requirements))),
    )
    # a thread cannot be cancelled: leave only when it is done, whatever happened meanwhile
    recording = asyncio.ensure_future(asyncio.to_thread(record, space.target))
    await _settled(recording)
    with space.cache.boundary():
        contents = recording.result()
    return space.cache.commit(
        venv,
        contents,
        {
            "requirements": plan.shown(),
            "worker_needs": list(plan.worker_needs),
            "interpreter": space.interpreter.identity(),
            "index": space.index.public_url,
            "extra_indexes": space.index.public_scoped,
            "lock": plan.lock.digest if plan.lock is not None else None,
            "build_s": round(space.progress.elapsed_s, 3),
        },
    )


async def _locked(plan: Plan, space: Workspace) -> tuple[Resolution, tuple[str, ...]]:
    """Take what the lock has for this machine, and this installation's own package where that is left out."""
    assert plan.lock is not None
    resolution = plan.lock.for_machine(space.interpreter)
    if plan.wheel is not None and not plan.lock.has_benchmax:
        wheel = await asyncio.to_thread(plan.wheel.store, space.cache)
        own = own_entry(wheel, version=plan.wheel.version, digest=plan.wheel.digest)
        data = {**plan.lock.data, "packages": [*plan.lock.packages, own]}
        resolution = Resolution.from_data(
            data, environment=markers(space.interpreter.series, version=space.interpreter.version)
        )
    return resolution, ()


async def _settled(task: asyncio.Future[Any]) -> None:
    """Wait for a task's end even while being cancelled, and let a cancellation through afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _installed(site_packages: Path, space: Workspace) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read what is installed from its metadata files."""
    packages, warnings = {}, []
    for distribution in importlib.metadata.distributions(path=[str(site_packages)]):
        try:
            metadata = distribution.metadata
        except UnicodeDecodeError:
            continue
        if "Name" not in metadata or "Version" not in metadata:
            # only looks like an installed package, as the above; installers refuse real ones of this kind
            continue
        name, version = metadata["Name"], metadata["Version"]
        packages[canonicalize_name(name)] = version
        wanted = (metadata.get_all("Requires-Python") or [""])[0]
        if wanted and not _accepts(wanted, space.interpreter.version):
            warnings.append(f"{name} {version} says it is for Python {wanted}, not {space.interpreter.version}.")
    return dict(sorted(packages.items())), tuple(sorted(warnings))


def _accepts(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return True


def _check_complete(resolution: Resolution, packages: Mapping[str, str]) -> None:
    missing = sorted(set(resolution.packages) - set(packages))
    if missing:
        raise ProvisionError(f"after installation {', '.join(missing)} is missing from the venv.", hint="Run it again.")


def _packages(count: int) -> str:
    return "1 package" if count == 1 else f"{count} packages"
