"""Builds one venv: makes it, resolves, installs and compiles, and declares it whole last of all.

No program runs inside the venv once a package is in it: a `.pth` file would run with it. The venv's interpreter is
asked only while it is still empty; afterwards what is installed is read from the files.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from runner.errors import ProvisionError
from runner.provision.bytecode import compile_startup
from runner.provision.diagnosis import InstallerFailedError
from runner.provision.installer import Installer, make_installer
from runner.provision.pip import Pip
from runner.provision.plan import Plan
from runner.provision.prerelease import resolve_within_rule
from runner.provision.resolution import Resolution
from runner.provision.venv import Venv
from runner.provision.wheel import DISTRIBUTION
from runner.provision.workspace import Workspace

LOCK_NAME: Final = "pylock.toml"

_VIRTUALENV: Final = threading.Lock()
"""virtualenv keeps process-wide state while it works."""


async def build(plan: Plan, *, key: str, family: Literal["uv", "pip"], space: Workspace) -> Venv:
    """Build the venv of a key; the key's lock must be held.

    Args:
        plan: What to install.
        key: Name of the entry.
        family: Which installer to use.
        space: Where and with what.

    Raises:
        ProvisionError: one of its subclasses says why there is no venv.
    """
    installer = make_installer(family, space)
    # the empty venv is made while the installer resolves; neither needs the other
    making = asyncio.ensure_future(asyncio.to_thread(_make_empty, space))
    try:
        resolution, warnings = await _resolve(plan, installer, space)
    except InstallerFailedError as error:
        raise error.failure.error from None
    finally:
        # a thread cannot be cancelled: leave only when it is done, whatever happened meanwhile
        await _settled(making)
    making.result()
    python, site_packages = space.target / "bin" / "python", _site_packages(space)
    with space.cache.boundary():
        lock = space.target / LOCK_NAME
        lock.write_text(resolution.lock, encoding="utf-8")
    if resolution.packages:
        space.progress.tell("install", f"installing {_packages(len(resolution.packages))} with {installer.title}")
        try:
            await installer.install(lock, python=python)
        except InstallerFailedError as error:
            raise error.failure.error from None
    packages, more_warnings = await asyncio.to_thread(_installed, site_packages, space)
    _check_complete(resolution, packages)
    await compile_startup(site_packages, space)
    venv = Venv(
        key=key,
        path=space.target,
        python=python,
        python_version=space.interpreter.series,
        base_python=space.interpreter.path,
        packages=packages,
        installer=installer.title,
        warnings=(*warnings, *more_warnings),
    )
    space.cache.commit(
        venv,
        {
            "requirements": plan.shown(),
            "worker_needs": list(plan.worker_needs),
            "interpreter": space.interpreter.identity(),
            "index": space.index.public_url,
            "build_s": round(space.progress.elapsed_s, 3),
        },
    )
    return venv


async def _resolve(plan: Plan, installer: Installer, space: Workspace) -> tuple[Resolution, tuple[str, ...]]:
    if plan.wheel is None or plan.index_benchmax:
        return await _resolve_lines(plan, plan.lines(None), installer, space)
    wheel = await asyncio.to_thread(plan.wheel.store, space.cache)
    try:
        return await _resolve_lines(plan, plan.lines(wheel), installer, space)
    except InstallerFailedError as error:
        failure = error.failure
        if failure.kind not in ("conflict", "no-version") or DISTRIBUTION not in failure.names:
            raise
        space.progress.tell("resolve", f"this installation's benchmax does not fit: {failure.error.message}")
        other = Plan(
            requirements=plan.requirements, wheel=plan.wheel, worker_needs=plan.worker_needs, index_benchmax=True
        )
        try:
            resolution, warnings = await _resolve_lines(other, other.lines(None), installer, space)
        except InstallerFailedError as second:
            if second.failure.kind in ("unreachable", "authentication", "disk"):
                raise
            # the first reason is the one its reader can act on
            raise error from None
        taken = resolution.packages.get(DISTRIBUTION, "")
        why = failure.error.message.rstrip(".")
        return resolution, (*warnings, f"benchmax {taken} from {space.index.host} is used instead of this one: {why}.")


async def _resolve_lines(
    plan: Plan, lines: list[str], installer: Installer, space: Workspace
) -> tuple[Resolution, tuple[str, ...]]:
    if not lines:
        return Resolution.from_lock('lock-version = "1.0"\ncreated-by = "benchmax"\n'), ()
    space.progress.tell("resolve", f"resolving {len(lines)} requirements with {installer.title}")

    async def has_final(name: str) -> bool:
        # one answer for both installers: pip lists releases by index page, which uv has no command for
        pip = installer if isinstance(installer, Pip) else Pip(space)
        return await pip.has_final_release(name)

    return await resolve_within_rule(
        lines,
        resolve=lambda allowed, forbidden: installer.resolve(
            lines, allowed=allowed, forbidden=forbidden, follow_dependencies=plan.follow_dependencies
        ),
        has_final=has_final,
    )


def _make_empty(space: Workspace) -> None:
    """Make a venv with nothing in it, not even pip."""
    from virtualenv import cli_run

    words = [
        str(space.target),
        "--python",
        str(space.interpreter.path),
        "--no-seed",
        "--activators=",
        "--no-vcs-ignore",
    ]
    words += ["--no-vcs-ignore", "--no-download", "--no-periodic-update", "--app-data", str(space.cache.virtualenv_dir)]
    # the caller's VIRTUALENV_* variables and configuration file have no say
    environment = {"VIRTUALENV_CONFIG_FILE": str(space.scratch / "no-such-file.ini")}
    with _VIRTUALENV, space.cache.boundary():
        try:
            cli_run(words, setup_logging=False, env=environment)
        except RuntimeError as error:
            raise ProvisionError(
                f"virtualenv cannot make a venv from {space.interpreter.path}: {error}.",
                hint="Name another interpreter with --python PATH.",
            ) from error


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


def _site_packages(space: Workspace) -> Path:
    return space.target / "lib" / f"python{space.interpreter.series}" / "site-packages"


def _installed(site_packages: Path, space: Workspace) -> tuple[dict[str, str], tuple[str, ...]]:
    """Read what is installed from its metadata files."""
    packages, warnings = {}, []
    for distribution in importlib.metadata.distributions(path=[str(site_packages)]):
        metadata = distribution.metadata
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
