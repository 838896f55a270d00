"""`benchmax cache`: what it shows, removes and finds."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from runner.cli.syntax import age, size
from runner.provision import Cache, Venv, provision_packages
from runner.provision.cache import lease_file
from runner.provision.options import ProvisionOptions
from tests.integration.command_line import CommandLine
from tests.integration.local_index import LocalIndex

pytestmark = pytest.mark.integration


@pytest.fixture
def benchmax(cache: Cache, tmp_path: Path) -> CommandLine:
    return CommandLine(cache.root, tmp_path)


def venv_of(index: LocalIndex, cache: Cache, requirement: str = "pack") -> Venv:
    options = ProvisionOptions(index_url=index.url)
    venv = asyncio.run(provision_packages([requirement], cache=cache, options=options))
    assert venv.lease is not None
    venv.lease.release()
    return venv


def test_dir_says_where_it_is(benchmax: CommandLine, cache: Cache) -> None:
    assert benchmax("cache", "dir").good().strip() == str(cache.root)
    assert json.loads(benchmax("cache", "dir", "--json").good()) == {"format": 1, "dir": str(cache.root)}


def test_empty_cache_is_no_error(benchmax: CommandLine, cache: Cache) -> None:
    assert "0 entries, 0 B" in benchmax("cache", "list").good()
    assert "freed 0 B" in benchmax("cache", "prune").good()
    assert "0 entries checked, 0 changed" in benchmax("cache", "verify").good()


def test_list_shows_sizes_ages_and_what_entries_are_for(benchmax: CommandLine, cache: Cache, index: LocalIndex) -> None:
    index.add("pack", "1.0")
    venv = venv_of(index, cache, "pack>=1")
    then = lease_file(venv.path).stat().st_mtime - 3 * 86400
    os.utime(lease_file(venv.path), (then, then))
    shown = benchmax("cache", "list").good()
    (line,) = [line for line in shown.splitlines() if venv.key in line]
    assert line.split()[:4] == [venv.key, "venv", venv.python_version, "1"]
    assert "3 days ago" in line
    assert line.split()[-1] == "pack>=1"
    finished = benchmax("cache", "list", "--json")
    facts = json.loads(finished.good())
    (entry,) = [entry for entry in facts["entries"] if entry["kind"] == "venv"]
    assert facts["size_bytes"] == sum(entry["size_bytes"] for entry in facts["entries"])
    assert entry["name"] == venv.key
    assert entry["whole"] is True
    assert entry["in_use"] is False
    assert venv.key in finished.err


def test_prune_removes_what_the_options_say(benchmax: CommandLine, cache: Cache, index: LocalIndex) -> None:
    index.add("pack", "1.0")
    venv = venv_of(index, cache)
    assert "removed" not in benchmax("cache", "prune", "--older-than", "1d", "--max-size", "1GB").good()
    assert f"removed venv {venv.key}" in benchmax("cache", "prune", "--max-size", "0").good()
    assert not venv.path.exists()
    facts = json.loads(benchmax("cache", "prune", "--json").good())
    assert facts == {"format": 1, "removed": [], "kept": [], "freed_bytes": 0, "left_bytes": 0}


def test_verify_names_what_was_changed_and_says_so_by_its_exit_code(
    benchmax: CommandLine, cache: Cache, index: LocalIndex
) -> None:
    index.add("pack", "1.0")
    venv = venv_of(index, cache)
    assert "1 entries checked, 0 changed" in benchmax("cache", "verify").good()
    (module,) = venv.path.rglob("pack.py")
    module.chmod(0o644)
    module.write_text("VERSION = 'evil\x1b[31m'\n")
    finished = benchmax("cache", "verify", "--json")
    assert finished.code == 3
    (entry,) = json.loads(finished.out)["entries"]
    assert entry["verdict"] == "changed"
    assert entry["changes"] == [f"{module.relative_to(venv.path)} was changed"]
    assert "1 entry of the cache is not as installed" in finished.err
    assert benchmax("cache", "verify").good()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "ACTION"),
        (["shrink"], "shrink"),
        (["prune", "--max-size", "big"], "--max-size: must be a size such as 500MB or 20GB, got 'big'"),
        (["prune", "--older-than", "-1d"], "--older-than"),
        (["list", "--older-than", "1d"], "unknown argument: --older-than"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(benchmax: CommandLine, words: list[str], said: str) -> None:
    assert said in benchmax("cache", *words).error(2)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("500", 500), ("1kB", 1000), ("1KiB", 1024), ("1.5 GB", 1_500_000_000), ("2g", 2 * 10**9)],
)
def test_sizes(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("90m", 5400), ("12h", 43200), ("1.5d", 129600)])
def test_ages(text: str, seconds: float) -> None:
    assert age(text) == seconds
