"""Several indexes do not get into each other's way, and credentials go to their own index and nowhere else."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import IndexUnreachableError, RequirementError, UsageError
from runner.provision import Cache, ExtraIndex, ProvisionEvent, ProvisionOptions, Venv, provision_packages
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("installer", ["uv", "pip"])]
USER, PASSWORD = "token-zqx-4711", "pass:zqx/0815"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[LocalIndex]:
    """A second index, which wants to know who asks."""
    with LocalIndex(tmp_path / "private", credentials=(USER, PASSWORD)) as served:
        yield served


def options(index: LocalIndex, private: LocalIndex, installer: Family, *names: str) -> ProvisionOptions:
    extra = ExtraIndex(names=names, url=private.url_with_credentials)
    return ProvisionOptions(index_url=index.url, extra_indexes=(extra,), installer=installer)


async def ask(cache: Cache, chosen: ProvisionOptions, *requirements: str) -> Venv:
    return await provision_packages(requirements, cache=cache, options=chosen)


async def test_named_packages_come_from_their_index_and_no_others(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    # each index has a newer one of what the other one is asked for
    index.add("own-kit", "9.0")
    index.add("shared", "1.0")
    private.add("own-kit", "1.0", ["shared"])
    private.add("shared", "9.0")
    venv = await ask(cache, options(index, private, installer, "Own_Kit"), "own-kit")
    assert venv.packages == {"own-kit": "1.0", "shared": "1.0"}
    assert not [path for path in index.requests if "own-kit" in path]
    assert not [path for path in private.requests if "shared" in path]


async def test_package_that_only_the_other_index_has_is_unknown(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("own-kit", "1.0")
    private.add("stray", "1.0")
    where = private.url.split("/")[2]
    with pytest.raises(RequirementError, match=f"no package named 'own-kit' on {where}"):
        await ask(cache, options(index, private, installer, "own-kit"), "own-kit")
    with pytest.raises(RequirementError, match="no package named 'stray'"):
        await ask(cache, options(index, private, installer, "own-kit"), "stray")


async def test_credentials_go_to_their_own_index_alone(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("shared", "1.0")
    private.add("own-kit", "1.0", ["shared"])
    # a page may name files anywhere
    elsewhere = index.add("away", "1.0")
    private.add_link("away", f"{index.url}/away/{elsewhere.wheel_name}", elsewhere.wheel())
    venv = await ask(cache, options(index, private, installer, "own-kit", "away"), "own-kit", "away")
    assert venv.packages == {"away": "1.0", "own-kit": "1.0", "shared": "1.0"}
    assert set(index.authorizations) == {None}
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    assert expected in private.authorizations


SPY = """
import os, pathlib, sys


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(folder, config_settings=None, metadata_directory=None):
    import zipfile
    seen = []
    pid = os.getpid()
    while pid > 1 and pid != TEST_PID:
        process = pathlib.Path(f"/proc/{pid}")
        for name in ("environ", "cmdline"):
            seen.append((process / name).read_bytes().replace(b"\\0", b" ").decode("utf-8", "replace"))
        pid = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    name = "spy_kit-1.0-py3-none-any.whl"
    info = "spy_kit-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("spied.txt", "\\n".join(seen))
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: spy-kit\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "spied.txt,,\\n")
    return name
"""


async def test_build_of_a_package_finds_no_credentials_in_any_process_that_made_it(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    private.add_sdist("spy-kit", "1.0", SPY.replace("TEST_PID", str(os.getpid())))
    venv = await ask(cache, options(index, private, installer, "spy-kit"), "spy-kit")
    (spied,) = venv.path.rglob("spied.txt")
    seen = spied.read_text()
    assert "benchmax" in seen, "the spy itself must work"
    for secret in (USER, PASSWORD, "pass%3Azqx%2F0815", base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()):
        assert secret not in seen


async def test_user_name_alone_is_a_secret_too(cache: Cache, installer: Family, tmp_path: Path) -> None:
    events: list[ProvisionEvent] = []
    with LocalIndex(tmp_path / "index", credentials=("only-a-token-zqx", "")) as index:
        index.add("pack", "1.0")
        url = index.url.replace("http://", "http://only-a-token-zqx@")
        chosen = ProvisionOptions(index_url=url, installer=installer)
        venv = await provision_packages(["pack"], cache=cache, options=chosen, on_event=events.append)
        assert venv.packages == {"pack": "1.0"}
        with pytest.raises(RequirementError) as unknown:
            await provision_packages(["absent"], cache=cache, options=chosen, on_event=events.append)
        other = Cache(tmp_path / "other")
        wrong = ProvisionOptions(index_url=url.replace("zqx", "zqxx"), installer=installer)
        with pytest.raises(IndexUnreachableError, match="refuses access") as refused:
            await provision_packages(["pack"], cache=other, options=wrong, on_event=events.append)
    said = [repr(events), repr(chosen), repr(venv)]
    for error in (unknown.value, refused.value):
        said += [str(error), repr(error), error.detail]
    assert "zqx" not in "\n".join(said)
    for root in (cache.root, other.root):
        for path in root.rglob("*"):
            assert "zqx" not in path.name
            if path.is_file() and "tools" not in path.parts:
                assert b"only-a-token-zqx" not in path.read_bytes(), path


async def test_netrc_and_environment_of_the_caller_are_not_asked(
    private: LocalIndex, cache: Cache, installer: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private.add("pack", "1.0")
    netrc = tmp_path / ".netrc"
    netrc.write_text(f"machine 127.0.0.1\nlogin {USER}\npassword {PASSWORD}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("UV_DEFAULT_INDEX", private.url_with_credentials)
    monkeypatch.setenv("PIP_INDEX_URL", private.url_with_credentials)
    with pytest.raises(IndexUnreachableError, match="refuses access"):
        await ask(cache, ProvisionOptions(index_url=private.url, installer=installer), "pack")
    # nor where credentials are sent on by a relay
    other = private.url_with_credentials.replace("0815", "0816")
    with pytest.raises(IndexUnreachableError, match="refuses access"):
        await ask(cache, ProvisionOptions(index_url=other, installer=installer), "pack")


async def test_index_behind_a_relay_that_does_not_answer_is_named(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("pack", "1.0")
    extra = ExtraIndex(names=("own-kit",), url="http://me:word@127.0.0.1:9/simple")
    chosen = ProvisionOptions(index_url=index.url, extra_indexes=(extra,), installer=installer)
    with pytest.raises(IndexUnreachableError, match=r"127\.0\.0\.1:9 cannot be reached"):
        await ask(cache, chosen, "pack", "own-kit")


async def test_manifest_names_indexes_without_credentials(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    private.add("own-kit", "1.0")
    venv = await ask(cache, options(index, private, installer, "own-kit"), "own-kit")
    text = (venv.path.parent / "manifest.json").read_text()
    manifest = json.loads(text)
    assert manifest["extra_indexes"] == {"own-kit": private.url}
    assert "zqx" not in text
    assert ".invalid" not in text
    assert ".invalid" not in (venv.path / "pylock.toml").read_text()


async def test_what_cannot_be_scoped_is_refused(
    index: LocalIndex, private: LocalIndex, cache: Cache, installer: Family
) -> None:
    del cache
    url = private.url_with_credentials
    for text in ("no-equals-sign", f"{url}", f"={url}", f"a b={url}", "name="):
        with pytest.raises(UsageError, match="extra index") as caught:
            ExtraIndex.parse(text)
        assert "zqx" not in str(caught.value)
    with pytest.raises(UsageError, match="named for two extra indexes"):
        ProvisionOptions(
            extra_indexes=(ExtraIndex(names=("a",), url=url), ExtraIndex(names=("A",), url=index.url)),
            installer=installer,
        )
    with pytest.raises(UsageError, match="holds a user name") as links:
        ProvisionOptions(find_links=(url,), installer=installer)
    assert "zqx" not in str(links.value)
