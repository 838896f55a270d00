"""Content that was changed is found, and what has it is made again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.provision import Cache, Venv, compile_modules, provision_packages
from runner.provision.cache_verification import Verified, verify
from runner.provision.link_mode import link_mode
from runner.provision.options import Choice, ProvisionOptions
from tests.integration.local_index import LocalIndex

pytestmark = pytest.mark.integration


async def ask(index: LocalIndex, cache: Cache, requirement: str = "pack", *, installer: Choice = "auto") -> Venv:
    options = ProvisionOptions(index_url=index.url, installer=installer)
    return await provision_packages([requirement], cache=cache, options=options)


def module(venv: Venv) -> Path:
    (path,) = venv.path.rglob("pack.py")
    return path


def edit(path: Path) -> None:
    path.chmod(0o644)
    path.write_text("VERSION = 'of somebody else'\n")


def remove(path: Path) -> None:
    path.parent.chmod(0o755)
    path.unlink()


def add_beside(path: Path) -> None:
    path.parent.chmod(0o755)
    path.with_name("evil.pth").write_text("import os\n")


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_fresh_venv_is_whole_by_either_installer(index: LocalIndex, cache: Cache, installer: Choice) -> None:
    index.add("pack", "1.0")
    venv = await ask(index, cache, installer=installer)
    assert verify(cache) == [Verified(name=venv.key, verdict="whole")]


@pytest.mark.parametrize(
    ("act", "said"),
    [(edit, "pack.py was changed"), (remove, "pack.py is missing"), (add_beside, "evil.pth was added")],
    ids=["changed", "removed", "added"],
)
async def test_changed_venv_is_named_and_made_again(
    index: LocalIndex, cache: Cache, act: Callable[[Path], None], said: str
) -> None:
    index.add("pack", "1.0")
    venv = await ask(index, cache)
    assert venv.lease is not None
    venv.lease.release()
    act(module(venv))
    (found,) = verify(cache)
    assert found.verdict == "changed"
    assert [line.endswith(said) for line in found.changes] == [True]
    assert not venv.path.exists()
    again = await ask(index, cache)
    assert module(again).read_text() == "VERSION = '1.0'\n"
    assert verify(cache) == [Verified(name=venv.key, verdict="whole")]


async def test_changed_venv_in_use_is_out_of_use_for_the_next_and_stays_for_its_user(
    index: LocalIndex, cache: Cache
) -> None:
    index.add("pack", "1.0")
    used = await ask(index, cache)
    edit(module(used))
    assert [found.verdict for found in verify(cache)] == ["changed"]
    assert used.python.exists()
    again = await ask(index, cache)
    assert again.path != used.path
    assert module(again).read_text() == "VERSION = '1.0'\n"


async def test_package_that_is_gone_is_noticed_without_verification(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    venv = await ask(index, cache)
    (record,) = venv.path.rglob("*.dist-info/RECORD")
    remove(record)
    again = await ask(index, cache)
    assert again.path != venv.path


async def test_venv_shares_no_file_with_the_installers_cache(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    venv = await ask(index, cache, installer="uv")
    assert link_mode(cache.root) in ("clone", "copy")
    assert {path.stat().st_nlink for path in venv.path.rglob("*") if path.is_file() and not path.is_symlink()} == {1}


async def test_editing_a_venv_changes_no_later_one(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    edit(module(await ask(index, cache)))
    later = await ask(index, cache, "pack<2")
    assert module(later).read_text() == "VERSION = '1.0'\n"


async def test_wheel_of_our_own_that_was_changed_is_removed(cache: Cache) -> None:
    from runner.provision.wheel import build_own_wheel

    cache.prepare()
    own = build_own_wheel()
    path = own.store(cache)
    assert [found.verdict for found in verify(cache)] == ["whole"]
    path.write_bytes(b"PK")
    assert [found.verdict for found in verify(cache)] == ["changed"]
    assert own.store(cache).read_bytes() == own.data


async def test_only_recorded_modules_are_compiled_and_the_result_is_known(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0", files={"broken.py": "this is (no Python\n", "never.py": "X = 1\n"})
    venv = await ask(index, cache)
    site = module(venv).parent
    site.chmod(0o755)
    (site / "planted.py").write_text("X = 1\n")
    relative = site.relative_to(venv.path).as_posix()
    asked = [f"{relative}/{name}" for name in ("pack.py", "broken.py", "planted.py", "absent.py", "pack.py\n")]
    asked += ["/etc/passwd.py", f"{relative}/../../../../../outside.py", str(module(venv))]
    assert await compile_modules(venv, asked) == 2
    made = sorted(path.name.partition(".")[0] for path in site.glob("__pycache__/*.pyc"))
    assert made == ["pack"]
    # neither again, nor what cannot be compiled
    assert await compile_modules(venv, asked) == 0
    remove(site / "planted.py")
    assert verify(cache) == [Verified(name=venv.key, verdict="whole")]
    (compiled,) = site.glob("__pycache__/*.pyc")
    compiled.write_bytes(b"something else")
    assert [found.verdict for found in verify(cache)] == ["changed"]


async def test_nothing_is_executed_by_compiling(index: LocalIndex, cache: Cache, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    evil = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
    index.add("pack", "1.0", files={"evil.pth": evil, "sitecustomize.py": evil, "evil.py": evil})
    venv = await ask(index, cache)
    site = module(venv).parent.relative_to(venv.path).as_posix()
    assert await compile_modules(venv, [f"{site}/{name}" for name in ("pack.py", "evil.py", "sitecustomize.py")]) == 3
    assert verify(cache) == [Verified(name=venv.key, verdict="whole")]
    assert not marker.exists()


async def test_two_that_compile_at_once_do_not_meet(index: LocalIndex, cache: Cache) -> None:
    from runner.provision.lease import Lease

    index.add("pack", "1.0")
    venv = await ask(index, cache)
    path = module(venv).relative_to(venv.path).as_posix()
    other = Lease.exclusive(venv.path.with_name(f"{venv.path.name}.compiling"), create=True)
    assert other is not None
    assert await compile_modules(venv, [path]) == 0
    other.release()
    assert await compile_modules(venv, [path]) == 1


async def test_entry_is_rebuilt_when_its_base_interpreter_has_vanished(index: LocalIndex, cache: Cache) -> None:
    index.add("pack", "1.0")
    venv = await ask(index, cache)
    manifest = venv.path.parent / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(venv.base_python), "/nonexistent/bin/python3"))
    again = await ask(index, cache)
    assert again.path != venv.path
    assert again.base_python.exists()
