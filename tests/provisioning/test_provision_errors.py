"""Why an install failed is told by kind, in one line, whichever installer it was, and at once."""

from __future__ import annotations

import asyncio
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import (
    BuildError,
    CacheError,
    IndexUnreachableError,
    InstallTimeoutError,
    ProvisionError,
    RequirementError,
)
from runner.limits import Limits
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, provision_packages
from runner.provision import uv as uv_module
from tests.conftest import require
from tests.integration.isolation import until
from tests.integration.local_index import LocalIndex, Package

Family = Literal["uv", "pip"]
pytestmark = pytest.mark.integration
FAMILIES = pytest.mark.parametrize("installer", ["uv", "pip"])

BUILD = "def build_wheel(directory, settings=None, metadata=None):\n"


@dataclass(frozen=True)
class Case:
    """What is on the index, what is asked for, and what must be said."""

    requirements: tuple[str, ...]
    stock: Callable[[LocalIndex], object]
    error: type[ProvisionError]
    said: tuple[str, ...]
    hint: str = ""
    detail: str = ""


def _chain(index: LocalIndex) -> None:
    index.add("top", "1.0", ["middle>=2"])
    index.add("middle", "2.0", ["bottom<2"])
    for version in ("1.0", "2.0"):
        index.add("bottom", version)


def _broken(index: LocalIndex) -> None:
    package = Package(name="halved", version="1.0")
    index.add_file(package, package.wheel_name, package.wheel()[:200])


def _vanished(index: LocalIndex) -> None:
    package = index.add("vanished", "1.0")
    (index.root / "simple" / "vanished" / package.wheel_name).unlink()


def _swapped(index: LocalIndex) -> None:
    package = Package(name="swapped", version="1.0")
    index.add_file(package, package.wheel_name, package.wheel(), digest="0" * 64)


CASES = {
    "nobody has such a package": Case(
        ("nowhere",),
        lambda index: None,
        RequirementError,
        ("no package named 'nowhere'", "127.0.0.1"),
        "Correct the name",
    ),
    "a dependency that nobody has": Case(
        ("wanting",),
        lambda index: index.add("wanting", "1.0", ["nowhere"]),
        RequirementError,
        ("no package named 'nowhere', which wanting wants",),
    ),
    "no version that is new enough": Case(
        ("pack>=3",),
        lambda index: (index.add("pack", "1.0"), index.add("pack", "2.0")),
        RequirementError,
        ("no version of 'pack'", "pack>=3", "2.0"),
        "Loosen",
    ),
    "no such version of a dependency": Case(
        ("wanting",),
        lambda index: (index.add("wanting", "1.0", ["pack==9"]), index.add("pack", "1.0")),
        RequirementError,
        ("no version of 'pack'", "pack==9", "wanting"),
    ),
    "a conflict with what is asked for, two steps away": Case(
        ("top", "bottom>=2"),
        _chain,
        RequirementError,
        ("contradict each other on 'bottom'", "bottom>=2 is asked for", "middle", "wants bottom<2"),
        "Loosen one",
    ),
    "a wheel for another platform alone": Case(
        ("elsewhere",),
        lambda index: index.add("elsewhere", "1.0", tag="cp312-cp312-win_amd64"),
        RequirementError,
        ("'elsewhere'", "no file that fits Python", "linux"),
    ),
    "a dependency with a wheel for another Python alone": Case(
        ("wanting",),
        lambda index: (index.add("wanting", "1.0", ["older"]), index.add("older", "1.0", tag="cp36-cp36m-any")),
        RequirementError,
        ("'older'", "no file that fits Python"),
    ),
    "a build that fails late": Case(
        ("noisy",),
        lambda index: index.add_sdist(
            "noisy",
            "1.0",
            f"{BUILD}    for n in range(400): print('step', n)\n    raise RuntimeError('the real reason')\n",
        ),
        BuildError,
        ("build failed: 'noisy", "RuntimeError: the real reason"),
        "wheel",
        "RuntimeError: the real reason",
    ),
    "a build that needs what it does not declare": Case(
        ("wanting",),
        lambda index: (
            index.add("wanting", "1.0", ["undeclaring"]),
            index.add_sdist("undeclaring", "1.0", f"{BUILD}    import absent_tool\n"),
        ),
        BuildError,
        ("build failed: 'undeclaring", "which wanting", "needs 'absent_tool'", "does not declare"),
        "wheel",
        "ModuleNotFoundError: No module named 'absent_tool'",
    ),
    "a build whose backend cannot be loaded": Case(
        ("unloadable",),
        lambda index: index.add_sdist("unloadable", "1.0", f"import absent_backend\n{BUILD}    pass\n"),
        BuildError,
        ("build failed: 'unloadable", "needs 'absent_backend'"),
    ),
    "a build that kills itself": Case(
        ("dying",),
        lambda index: index.add_sdist("dying", "1.0", f"{BUILD}    import os; os.kill(os.getpid(), 9)\n"),
        BuildError,
        ("build failed: 'dying",),
    ),
    "a file that is not there": Case(
        ("vanished",),
        _vanished,
        IndexUnreachableError,
        ("lists vanished-1.0-py3-none-any.whl", "404"),
        "another version",
    ),
    "a file that is no package": Case(("halved",), _broken, ProvisionError, ("'halved", "not a valid package")),
    "a file with another content": Case(("swapped",), _swapped, ProvisionError, ("'swapped", "digest")),
}


@FAMILIES
@pytest.mark.parametrize("case", CASES)
async def test_failures_by_kind(index: LocalIndex, cache: Cache, installer: Family, case: str) -> None:
    expected = CASES[case]
    expected.stock(index)
    events: list[ProvisionEvent] = []
    with pytest.raises(ProvisionError) as caught:
        await provision_packages(
            expected.requirements,
            cache=cache,
            options=ProvisionOptions(index_url=index.url, installer=installer),
            on_event=events.append,
        )
    error = caught.value
    assert type(error) is expected.error
    for part in expected.said:
        assert part in error.message
    assert expected.hint in error.hint
    assert expected.detail in error.detail
    assert "\n" not in error.message + error.hint
    # what cannot end otherwise is not tried again
    assert len([event for event in events if event.message.startswith("resolving")]) == 1
    assert not [event for event in events if "once more" in event.message]
    assert not list(cache.venvs_dir.iterdir())


async def test_uvs_advice_on_a_missing_build_dependency_is_kept(index: LocalIndex, cache: Cache) -> None:
    index.add_sdist("undeclaring", "1.0", f"{BUILD}    import absent_tool\n")
    with pytest.raises(BuildError) as caught:
        await provision_packages(
            ["undeclaring"], cache=cache, options=ProvisionOptions(index_url=index.url, installer="uv")
        )
    assert "but doesn't declare it as a build dependency" in caught.value.hint
    assert "hint: This error likely indicates" in caught.value.detail


class _Answering(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status in its path."""

    def do_GET(self) -> None:
        code = int(self.path.split("/")[1])
        self.send_response(code)
        if code == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by the base class
        """Say nothing."""


@pytest.fixture(scope="module")
def answering() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@FAMILIES
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://{host}/401/simple", "the package index at {host} refuses access: 401 Unauthorized"),
        ("http://{host}/403/simple", "the package index at {host} refuses access: 403 Forbidden"),
        ("http://{host}/503/simple", "the package index at {host} cannot be reached: it answers 503 Service Unavail"),
        ("https://{host}/200/simple", "the package index at {host} cannot be reached: "),
        ("http://nohost.invalid/simple", "the package index at nohost.invalid cannot be reached: "),
    ],
)
async def test_index_that_is_of_no_use_is_not_taken_for_one_without_the_package(
    cache: Cache, installer: Family, answering: str, url: str, said: str
) -> None:
    with pytest.raises(IndexUnreachableError) as caught:
        await provision_packages(
            ["pack"],
            cache=cache,
            options=ProvisionOptions(index_url=url.format(host=answering), installer=installer),
        )
    assert caught.value.message.startswith(said.format(host=answering))
    assert caught.value.fault == "host"


@FAMILIES
@pytest.mark.parametrize(
    ("requirement", "error", "said"),
    [
        (
            "pack @ http://{host}/404/pack-1.0-py3-none-any.whl",
            RequirementError,
            "no file pack-1.0-py3-none-any.whl at",
        ),
        ("pack @ http://127.0.0.1:9/pack-1.0-py3-none-any.whl", IndexUnreachableError, "the server at 127.0.0.1:9"),
        ("pack @ git+http://127.0.0.1:9/pack.git", IndexUnreachableError, "the server at 127.0.0.1:9"),
        ("pack @ git+file:///nonexistent/pack.git", RequirementError, "the repository of 'pack' cannot be fetched"),
    ],
)
async def test_requirement_with_an_address_of_its_own_blames_that_address(
    cache: Cache, installer: Family, answering: str, requirement: str, error: type[ProvisionError], said: str
) -> None:
    require(shutil.which("git"), "git")
    with pytest.raises(error, match=said):
        await provision_packages(
            [requirement.format(host=answering)],
            cache=cache,
            # what only a requirement names on this machine is not asked
            options=ProvisionOptions(
                index_url=f"http://{answering}/404/simple", installer=installer, file_hosts=("127.0.0.1:9",)
            ),
        )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for an installer and little more."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True).returncode == 0
    )
    require(mounted, "the right to mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@FAMILIES
async def test_full_disk_is_told_as_such_and_leaves_nothing_in_use(
    index: LocalIndex, small_disk: Path, installer: Family
) -> None:
    index.add("huge", "1.0", files={"huge_data.bin": "0123456789abcdef" * (3 << 20)})
    index.add("tiny", "1.0")
    cache = Cache(small_disk / "cache")
    options = ProvisionOptions(index_url=index.url, installer=installer)
    with pytest.raises(CacheError, match="No space left on device") as caught:
        await provision_packages(["huge"], cache=cache, options=options)
    assert str(cache.root) in caught.value.message
    assert not list(cache.venvs_dir.iterdir())
    assert (await provision_packages(["tiny"], cache=cache, options=options)).packages == {"tiny": "1.0"}


async def test_download_that_breaks_off_again_and_again_is_an_index_that_cannot_be_reached(
    index: LocalIndex, cache: Cache
) -> None:
    index.add("halved", "1.0", files={"halved_data.bin": "0123456789abcdef" * (1 << 12)})
    index.cut = "/halved/halved-1.0"
    options = ProvisionOptions(index_url=index.url, installer="pip")
    said = r"the package index at 127\.0\.0\.1:\d+ cannot be reached: a download broke off again and again"
    with pytest.raises(IndexUnreachableError, match=said):
        await provision_packages(["halved"], cache=cache, options=options)
    assert list(cache.venvs_dir.iterdir()) == []


@FAMILIES
@pytest.mark.parametrize(
    ("limits", "how"),
    [
        (Limits(install_silence_s=1.5), "made no progress for"),
        (Limits(install_s=6.0), "was not done after 6 s"),
    ],
)
async def test_stalled_download_ends_by_either_limit_and_names_phase_host_and_last_line(
    index: LocalIndex, cache: Cache, installer: Family, limits: Limits, how: str
) -> None:
    index.add("stalling", "1.0")
    index.stall = "/stalling/stalling-1.0"
    with pytest.raises(InstallTimeoutError) as caught:
        await provision_packages(
            ["stalling"],
            cache=cache,
            options=ProvisionOptions(index_url=index.url, installer=installer),
            limits=limits,
        )
    message = caught.value.message
    assert how in message
    assert "'resolve'" in message
    assert index.url.split("/")[2] in message
    assert "its last line was" in message or "it had printed nothing" in message
    assert index.stalled.is_set()
    assert not list(cache.venvs_dir.iterdir())


async def test_time_out_of_a_build_quotes_what_the_installer_said_last(index: LocalIndex, cache: Cache) -> None:
    index.add_sdist("endless", "1.0", f"{BUILD}    import time\n    time.sleep(1000)\n")
    with pytest.raises(InstallTimeoutError, match=r"phase 'resolve' .*its last line was '.*metadata.*'"):
        await provision_packages(
            ["endless"],
            cache=cache,
            options=ProvisionOptions(index_url=index.url, installer="pip"),
            limits=Limits(install_silence_s=1.5),
        )


async def test_cache_that_is_cleaned_under_an_install_costs_one_more_try(index: LocalIndex, cache: Cache) -> None:
    """Uv's cache really loses what has been unpacked while another file is still on its way."""
    index.add("first", "1.0")
    index.add("second", "1.0")
    events: list[ProvisionEvent] = []

    def heard(event: ProvisionEvent) -> None:
        events.append(event)
        if event.message.startswith("installing") and not index.stalled.is_set():
            index.stall = "/second/second-1.0"

    building = asyncio.ensure_future(
        provision_packages(
            ["first", "second"],
            cache=cache,
            options=ProvisionOptions(index_url=index.url, installer="uv"),
            on_event=heard,
        )
    )
    unpacked = cache.uv_dir / "archive-v0"

    def first_is_there() -> bool:
        # its place in the cache is written after it is unpacked
        return index.stalled.is_set() and bool(list(cache.uv_dir.glob("wheels-*/*/*/first/1.0-*.http")))

    await until(first_is_there, what="a stall")
    shutil.rmtree(unpacked)
    index.stall = None
    index.resume.set()
    venv = await building
    assert venv.packages == {"first": "1.0", "second": "1.0"}
    assert len([event for event in events if "trying once more" in event.message]) == 1
    assert "archive-v0" in next(event.message for event in events if "once more" in event.message)


async def test_race_is_tried_again_once_and_only_once(
    index: LocalIndex, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("pack", "1.0")
    index.add("before", "1.0")
    # without a sandbox, since the wrapper writes files of its own; once before it, so that uv is known already
    options = ProvisionOptions(index_url=index.url, installer="uv", sandbox="off")
    await provision_packages(["before"], cache=cache, options=options)
    found = uv_module.find_uv()
    assert found is not None
    counter, failures = tmp_path / "count", tmp_path / "failures"
    wrapper = tmp_path / "uv"
    said = f"cause: failed to read directory `{cache.uv_dir}/archive-v0/x`: No such file or directory (os error 2)"
    wrapper.write_text(
        f'#!/bin/sh\necho >> "{counter}"\n'
        f'if [ "$(wc -l < "{counter}")" -le "$(cat "{failures}")" ]; then echo "error: Failed to install: x" >&2\n'
        f"echo '  {said}' >&2; exit 2; fi\nexec '{found[0]}' \"$@\"\n"
    )
    wrapper.chmod(0o755)
    monkeypatch.setattr(uv_module, "find_uv", lambda: (wrapper, found[1]))
    failures.write_text("99")
    with pytest.raises(ProvisionError, match="the installer's cache changed while it was used"):
        await provision_packages(["pack"], cache=cache, options=options)
    assert len(counter.read_text().splitlines()) == 2
    counter.unlink()
    failures.write_text("1")
    assert (await provision_packages(["pack"], cache=cache, options=options)).packages == {"pack": "1.0"}
