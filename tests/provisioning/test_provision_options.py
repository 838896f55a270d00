"""What may be chosen: by date, wheels alone, prereleases only when listed, versions a worker runs with."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from packaging.requirements import Requirement

from benchmax.bundle import BundleMetadata
from runner.errors import RequirementError
from runner.provision import Cache, ProvisionOptions, Venv, provision, provision_packages
from tests.integration.command_line import CommandLine
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
both = pytest.mark.parametrize("installer", ["uv", "pip"])
SERIES = f"{sys.version_info.major}.{sys.version_info.minor}"
CHAT = """
from benchmax.envs import BaseEnv, Dataset, Example


class Chat(BaseEnv):
    max_turns = 1

    async def create_dataset(self, split, base_dir, *, max_examples=None):
        prompt = [{"role": "user", "content": "Say something."}]
        return Dataset([Example("only", {"prompt_messages": prompt})])

    async def compute_reward(self, rollout):
        return {"spoke": float(bool(rollout.messages[-1]["content"]))}
"""
NO_BUILD = "raise SystemExit('this must never be built')"


async def ask(index: LocalIndex, cache: Cache, installer: Family, *wanted: str, **more: Any) -> Venv:
    chosen = ProvisionOptions(index_url=index.url, installer=installer, **more)
    return await provision_packages(wanted, cache=cache, options=chosen)


# -- by date ---------------------------------------------------------------------------------------------------


@both
async def test_nothing_newer_than_the_day_is_taken(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("pack", "1.0", ["child"], uploaded="2026-01-30T08:00:00Z")
    # the day itself still counts, to its end
    index.add("pack", "2.0", ["child"], uploaded="2026-01-31T23:59:59Z")
    index.add("pack", "3.0", ["child"], uploaded="2026-02-01T00:00:00Z")
    index.add("child", "1.0", uploaded="2025-06-01T00:00:00Z")
    index.add("child", "2.0", uploaded="2026-06-01T00:00:00Z")
    venv = await ask(index, cache, installer, "pack", exclude_newer=date(2026, 1, 31))
    assert venv.packages == {"child": "1.0", "pack": "2.0"}
    newest = await ask(index, cache, installer, "pack")
    assert newest.packages == {"child": "2.0", "pack": "3.0"}
    assert newest.key != venv.key


@both
async def test_package_that_is_younger_than_the_day_is_an_error(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("pack", "1.0", uploaded="2026-02-01T00:00:00Z")
    with pytest.raises(RequirementError, match=r"no file of 'pack' that was uploaded up to 2026-01-31"):
        await ask(index, cache, installer, "pack", exclude_newer=date(2026, 1, 31))


@both
async def test_index_that_tells_no_dates_is_not_believed(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("pack", "1.0")
    with pytest.raises(RequirementError, match=r"no file of 'pack' that was uploaded up to 2026-01-31") as caught:
        await ask(index, cache, installer, "pack", exclude_newer=date(2026, 1, 31))
    assert "tells no upload times" in caught.value.hint


@both
async def test_release_that_came_later_does_not_count_for_the_prerelease_rule(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("young", "1.0b1", uploaded="2026-01-01T00:00:00Z")
    index.add("young", "1.0", uploaded="2026-03-01T00:00:00Z")
    venv = await ask(index, cache, installer, "young", exclude_newer=date(2026, 1, 31))
    assert venv.packages == {"young": "1.0b1"}


# -- wheels alone ----------------------------------------------------------------------------------------------


@both
async def test_wheels_alone_means_an_older_release_that_has_one(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("pack", "1.0")
    index.add_sdist("pack", "2.0", NO_BUILD)
    venv = await ask(index, cache, installer, "pack", only_binary=True)
    assert venv.packages == {"pack": "1.0"}


async def test_everything_that_would_be_built_is_named_at_once(index: LocalIndex, cache: Cache) -> None:
    index.add("parent", "1.0", ["one-source", "other-source>=1", "fine"])
    index.add("fine", "1.0")
    for name in ("one-source", "other-source"):
        index.add_sdist(name, "1.0", NO_BUILD)
    with pytest.raises(RequirementError, match="only wheels are allowed") as caught:
        await ask(index, cache, "uv", "parent", only_binary=True)
    assert "one-source and other-source have none" in caught.value.message
    for name in ("parent", "fine"):
        assert name not in caught.value.message


@both
async def test_sources_that_are_asked_for_directly_are_all_named(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("fine", "1.0")
    for name in ("one-source", "other-source"):
        index.add_sdist(name, "1.0", NO_BUILD)
    with pytest.raises(RequirementError, match="one-source and other-source have none") as caught:
        await ask(index, cache, installer, "one-source", "fine", "other-source", only_binary=True)
    assert "--only-binary" in caught.value.hint


@pytest.mark.slow
async def test_reasoning_gym_has_three_sources(shared_cache: Path) -> None:
    with pytest.raises(RequirementError, match="only wheels are allowed") as caught:
        await provision_packages(
            ["reasoning-gym"], cache=Cache(shared_cache), options=ProvisionOptions(only_binary=True)
        )
    assert "cellpylib, pycosat and zss have none" in caught.value.message


# -- prereleases -----------------------------------------------------------------------------------------------


@both
async def test_explicit_mode_takes_listed_prereleases_alone(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("young", "0.1b1")
    index.add("parent", "1.0", ["young"])
    assert (await ask(index, cache, installer, "young")).packages == {"young": "0.1b1"}
    for wanted in ("young", "parent"):
        with pytest.raises(RequirementError) as caught:
            await ask(index, cache, installer, wanted, prerelease="explicit")
        assert "young 0.1b1" in caught.value.message
        assert "\n" not in str(caught.value)
        assert '"young==0.1b1"' in caught.value.hint
    venv = await ask(index, cache, installer, "parent", "young>=0.1b1", prerelease="explicit")
    assert venv.packages == {"parent": "1.0", "young": "0.1b1"}


# -- what a worker runs with -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pin", ["openai<2", "httpx==0.26.*", "msgspec==0.18.6", "cloudpickle>=2,<3", "packaging~=23.0"]
)
async def test_pin_outside_the_range_is_told_before_anything_is_asked(
    index: LocalIndex, cache: Cache, pin: str
) -> None:
    ours = importlib.metadata.version("benchmax")
    metadata = BundleMetadata(
        pip_dependencies=(pin,), python_version=SERIES, benchmax_version=ours, env_class_source=None
    )
    with pytest.raises(RequirementError, match="the bundle wants") as caught:
        await provision(metadata, cache=cache, options=ProvisionOptions(index_url=index.url))
    name = pin.partition("<")[0].partition("=")[0].partition(">")[0].partition("~")[0]
    assert f"needs {name}" in caught.value.message
    assert not index.requests
    assert not cache.root.exists()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "pins",
    [
        ("openai==2.0.0", "httpx==0.27.0", "msgspec==0.19.0", "cloudpickle==3.0.0", "packaging==24.0"),
        ("openai>=3,<4", "httpx", "msgspec", "cloudpickle", "packaging"),
    ],
    ids=["lowest", "newest"],
)
def test_worker_runs_at_both_ends_of_its_ranges(shared_cache: Path, pins: tuple[str, ...], tmp_path: Path) -> None:
    command = CommandLine(shared_cache, tmp_path)
    (command.cwd / "chat.py").write_text(CHAT)
    words = [word for pin in pins for word in ("--pip", pin)]
    command("bundle", "chat.py:Chat", "--out", "chat", *words, makes="chat").good()
    report = json.loads(command("run", "chat", "--group-size", "2", "--json").good())
    assert {outcome["termination_reason"] for group in report["groups"] for outcome in group["outcomes"]} == {
        "finished"
    }
    held = report["venv"]["packages"]
    for requirement in map(Requirement, pins):
        assert requirement.specifier.contains(held[requirement.name])


def test_command_line_reads_all_of_it(index: LocalIndex, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "cache", tmp_path)
    artifact = str(command.artifact())
    assert "must be a day such as" in command("prepare", artifact, "--exclude-newer", "yesterday").error(2)
    assert "prerelease mode 'all'" in command("prepare", artifact, "--prerelease", "all").error(2)
    assert "installer 'conda'" in command("prepare", artifact, "--installer", "conda").error(2)
    assert "there is no such file" in command("prepare", artifact, "--find-links", "absent").error(2)
    secret = "http://me:zqx@127.0.0.1:9/simple"
    assert "zqx" not in command("prepare", artifact, "--extra-index", secret).error(2)
    assert "zqx" not in command("prepare", artifact, "--find-links", secret).error(2)
    said = command("prepare", artifact, "--index-url", secret, "--verbose")
    assert "127.0.0.1:9 cannot be reached" in said.err
    assert "zqx" not in said.err
    index.add("anything", "1.0")
    words = ("--index-url", index.url, "--only-binary", "--prerelease", "explicit", "--installer", "uv")
    assert "no package named" in command("prepare", artifact, *words).error(1)
