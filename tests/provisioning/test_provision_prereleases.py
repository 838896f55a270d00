"""One rule for prereleases, whatever the installer's own habits are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from runner.errors import RequirementError
from runner.provision import Cache, ProvisionOptions, provision_packages
from tests.integration.local_index import LocalIndex

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Case:
    requirements: list[str]
    installed: dict[str, str] | None = None
    refused: str = ""
    warned: str = ""


CASES = {
    "newest parent needs an unlisted prerelease, pinned": Case(
        ["parent==1.0.0"], refused='Add "transitive==2.0.0rc1" to pip_dependencies'
    ),
    "newest parent needs an unlisted prerelease, free": Case(
        ["parent"],
        {"parent": "0.9.0", "transitive": "1.0.0"},
        warned="parent 0.9.0 is installed instead of 1.0.0, which needs a prerelease the bundle does not list",
    ),
    "listed with an exact version": Case(
        ["parent", "transitive==2.0.0rc1"], {"parent": "1.0.0", "transitive": "2.0.0rc1"}
    ),
    "listed with a lower bound": Case(
        ["parent", "transitive>=2.0.0rc1"], {"parent": "1.0.0", "transitive": "2.0.0rc1"}
    ),
    "listed, but without a prerelease": Case(["parent==1.0.0", "transitive>=1"], refused="transitive==2.0.0rc1"),
    "direct requirement that only a prerelease meets": Case(["transitive>1.0.0"], refused="transitive==2.0.0rc1"),
    "direct requirement with a stable release": Case(["transitive"], {"transitive": "1.0.0"}),
    "package that never had another kind": Case(["wantsbeta"], {"wantsbeta": "1.0", "onlybeta": "0.5b2"}),
    "package that never had another kind, direct": Case(["onlybeta"], {"onlybeta": "0.5b2"}),
    "newest among the allowed wins": Case(["mixed>=2.0a1"], {"mixed": "3.0b1"}),
    "a stable release that fits wins over an unlisted prerelease": Case(
        ["wantsmixed"], {"wantsmixed": "1.0", "mixed": "2.0"}
    ),
    "two unlisted prereleases are both named": Case(
        ["parent==1.0.0", "other==1.0"], refused='"another==1.0a1" and "transitive==2.0.0rc1"'
    ),
    "stable release exists for another Python only": Case(["wantsold"], refused="oldstable==2.0a1"),
    "development releases are prereleases too": Case(["wantsdev"], refused="developed==1.1.dev3"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("prereleases"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalIndex]:
    with LocalIndex(tmp_path_factory.mktemp("index")) as served:
        fill(served)
        yield served


def fill(index: LocalIndex) -> None:
    index.add("parent", "1.0.0", ["transitive>=2.0.0rc1"])
    index.add("parent", "0.9.0", ["transitive>=1"])
    index.add("transitive", "1.0.0")
    index.add("transitive", "2.0.0rc1")
    index.add("wantsbeta", "1.0", ["onlybeta"])
    index.add("onlybeta", "0.5b1")
    index.add("onlybeta", "0.5b2")
    for version in ("1.0", "2.0a1", "2.0", "3.0b1"):
        index.add("mixed", version)
    index.add("wantsmixed", "1.0", ["mixed>=2.0a1"])
    index.add("other", "1.0", ["another>=1.0a1"])
    index.add("another", "0.9")
    index.add("another", "1.0a1")
    index.add("wantsold", "1.0", ["oldstable>=2.0a1"])
    index.add("oldstable", "1.0", requires_python="<3.9")
    index.add("oldstable", "2.0a1")
    index.add("wantsdev", "1.0", ["developed>1.0"])
    index.add("developed", "1.0")
    index.add("developed", "1.1.dev3")
    # nothing asks for it; its presence on the index must not matter
    index.add("unrelated", "9.0rc1")


@pytest.mark.parametrize("installer", ["uv", "pip"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_rule_gives_one_verdict(
    index: LocalIndex, cache: Cache, case: Case, installer: Literal["uv", "pip"]
) -> None:
    if case.installed is None:
        with pytest.raises(RequirementError) as caught:
            await provision_packages(
                case.requirements,
                cache=cache,
                options=ProvisionOptions(index_url=index.url, installer=installer),
            )
        assert case.refused in caught.value.hint
        assert "prerelease" in caught.value.message
        return
    venv = await provision_packages(
        case.requirements,
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.packages == case.installed
    if case.warned:
        assert case.warned in "\n".join(venv.warnings)
    else:
        assert venv.warnings == ()


@pytest.mark.parametrize("installer", ["uv", "pip"])
async def test_line_that_the_error_names_makes_it_install(
    index: LocalIndex, cache: Cache, installer: Literal["uv", "pip"]
) -> None:
    with pytest.raises(RequirementError) as caught:
        await provision_packages(
            ["parent==1.0.0"],
            cache=cache,
            options=ProvisionOptions(index_url=index.url, installer=installer),
        )
    line = caught.value.hint.split('"')[1]
    venv = await provision_packages(
        ["parent==1.0.0", line],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.packages == {"parent": "1.0.0", "transitive": "2.0.0rc1"}
