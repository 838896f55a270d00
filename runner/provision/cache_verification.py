"""Finds out whether what is in the cache is still what was put there, by its content.

A venv that is not is taken out of use, so that the next one who needs it builds it again; a wheel that is not is
removed. Nothing of either is executed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from runner.provision.bytecode import compiled
from runner.provision.cache import Cache, contents_file
from runner.provision.contents import Contents, changes, digest_of
from runner.provision.lease import Lease
from runner.provision.venv import Venv

Verdict = Literal["whole", "changed", "busy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found out about one entry.

    Args:
        name: A venv's key, or a wheel's file name.
        verdict: `whole`; `changed`, after which it is out of use; `busy` when it is being built or removed just now.
        changes: One line for each difference.
    """

    name: str
    verdict: Verdict
    changes: tuple[str, ...] = ()


def verify(cache: Cache) -> list[Verified]:
    """Check every venv and every wheel of our own in a cache; what is missing altogether is no entry.

    Raises:
        CacheError: the cache cannot be read, or something changed cannot be taken out of use.
    """
    with cache.boundary():
        venvs = [path for path in sorted(cache.venvs_dir.glob("*")) if (path / "manifest.json").exists()]
        found = [_verify_venv(cache, path.name) for path in venvs]
        return [*found, *_verify_wheels(cache)]


def _verify_venv(cache: Cache, key: str) -> Verified:
    venv = cache.find(key)
    if venv is None or venv.lease is None:
        with cache.try_lock(key) as held:
            # under the lock nobody builds or removes it, so if it is not to be had now, it is broken
            venv = cache.find(key) if held else None
            if venv is None or venv.lease is None:
                if not held:
                    return Verified(name=key, verdict="busy")
                cache.clear(key)
                text = "its manifest, its interpreter or a record of a package is not as it was"
                return Verified(name=key, verdict="changed", changes=(text,))
    with venv.lease:
        found = _changes(venv)
    if not found:
        return Verified(name=key, verdict="whole")
    with cache.try_lock(key) as held:
        # whoever holds the lock builds it again already
        if held and cache.described(key) == venv:
            cache.clear(key)
    return Verified(name=key, verdict="changed", changes=tuple(found))


def _changes(venv: Venv) -> list[str]:
    try:
        contents = Contents.from_json(json.loads(contents_file(venv.path).read_bytes()))
    except (OSError, ValueError):
        return [f"{contents_file(venv.path).name} cannot be read"]
    made = {path: digest for files in compiled(venv.path).values() for path, digest in files.items()}
    return changes(venv.path, contents, made)


def _verify_wheels(cache: Cache) -> list[Verified]:
    found = []
    for wheel in sorted(cache.wheels_dir.glob("*/*.whl")):
        if digest_of(wheel).startswith(wheel.parent.name):
            found.append(Verified(name=wheel.name, verdict="whole"))
            continue
        alone = Lease.exclusive(cache.installers_file, create=True)
        if alone is None:
            found.append(Verified(name=wheel.name, verdict="busy"))
            continue
        with alone:
            wheel.unlink()
        found.append(Verified(name=wheel.name, verdict="changed", changes=(f"{wheel} was changed",)))
    return found
