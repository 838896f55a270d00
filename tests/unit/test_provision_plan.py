"""What is installed and under which key follows from the inputs alone."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from benchmax.bundle import BundleMetadata
from runner.errors import RequirementError, UsageError
from runner.provision.environment import installer_environment
from runner.provision.index import Index
from runner.provision.interpreter import Interpreter
from runner.provision.lock import markers
from runner.provision.options import ProvisionOptions
from runner.provision.plan import Plan, check_requirements, plan_for_bundle
from runner.provision.prerelease import listed_prereleases
from runner.provision.resolution import Resolution
from runner.provision.wheel import (
    LIBRARY_NEEDS,
    OwnWheel,
    build_own_wheel,
    own_extra,
    own_requirements,
    own_version,
)

PYTHON = Interpreter(
    path=Path("/opt/python/bin/python3.12"),
    implementation="cpython",
    version="3.12.1",
    series="3.12",
    prefix=Path("/opt/python"),
    platform="linux-x86_64",
    free_threaded=False,
)
INDEX = "https://packages.example/simple"


def key(plan: Plan, **options: Any) -> str:
    return plan.key(PYTHON, installer="uv", options=ProvisionOptions(**{"index_url": INDEX, **options}))


def test_order_of_requirements_and_credentials_do_not_change_the_key() -> None:
    one = Plan(requirements=("a>=1", "b"))
    other = Plan(requirements=("b", "a>=1"))
    assert key(one) == key(other)
    assert key(one) == key(one, index_url="https://me:secret@packages.example/simple")
    assert key(one) != key(one, index_url="https://elsewhere.example/simple")


def test_own_wheel_is_deterministic_and_holds_the_library_alone() -> None:
    wheel = build_own_wheel()
    assert build_own_wheel() == wheel
    with zipfile.ZipFile(BytesIO(wheel.data)) as archive:
        names = archive.namelist()
        metadata = archive.read(f"benchmax-{wheel.version}.dist-info/METADATA").decode()
    assert {name.split("/")[0] for name in names} == {"benchmax", f"benchmax-{wheel.version}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]
    needs = [Requirement(line[15:]) for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    of_extras = [need.name for need in needs if need.marker is not None and "extra ==" in f"{need.marker}"]
    assert [f"{need}" for need in needs if need.name not in of_extras] == list(own_requirements(LIBRARY_NEEDS))
    assert of_extras == ["harbor"]
    for runner_only in ("virtualenv", "uvicorn", "msgspec"):
        assert runner_only not in metadata


def test_content_of_the_own_wheel_is_part_of_the_key() -> None:
    def with_digest(digest: str) -> str:
        return key(Plan(requirements=(), wheel=OwnWheel(version="0.2.6", digest=digest, file_name="", data=b"")))

    assert with_digest("a") != with_digest("b")


def test_missing_local_file_is_refused_while_the_key_is_made() -> None:
    with pytest.raises(RequirementError, match="local file that cannot be read"):
        key(Plan(requirements=("pack @ file:///nonexistent/pack-1-py3-none-any.whl",)))


@pytest.mark.parametrize("text", ["--index-url https://thief.example", "a b c", "", "-r other.txt", "../folder"])
def test_what_is_not_a_requirement_never_reaches_an_installer(text: str) -> None:
    with pytest.raises(RequirementError, match="is not a requirement"):
        check_requirements([text])


def test_address_with_a_variable_is_refused() -> None:
    with pytest.raises(RequirementError, match=r"\$\{"):
        check_requirements(["a @ https://host.example/${PIP_INDEX_URL}/a-1-py3-none-any.whl"])


@pytest.mark.parametrize(
    "url", ["packages.example/simple", "ftp://packages.example", "https://", "https://host:port/x"]
)
def test_address_that_is_no_index_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="index"):
        Index.from_url(url)


def test_credentials_are_removed_wherever_they_stand() -> None:
    index = Index.from_url("https://my-name:p%40ss-word@packages.example:8443/simple")
    assert index.public_url == "https://packages.example:8443/simple"
    assert index.host == "packages.example:8443"
    assert "ss-word" not in repr(index)
    text = "GET https://my-name:p%40ss-word@packages.example/a as my-name with p@ss-word via http://u:v@proxy.example"
    assert index.redact(text) == "GET https://****@packages.example/a as **** with **** via http://****@proxy.example"


def test_index_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHMAX_INDEX_URL", "https://mirror.example/simple")
    assert Index.from_url(None).host == "mirror.example"
    assert Index.from_url("https://given.example/simple").host == "given.example"
    monkeypatch.delenv("BENCHMAX_INDEX_URL")
    assert Index.from_url(None).host == "pypi.org"


def test_installers_get_proxies_and_certificates_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed = {"https_proxy": "http://proxy.example", "NO_PROXY": "x", "SSL_CERT_FILE": "/c", "REQUESTS_CA_BUNDLE": "/d"}
    for name, value in {**passed, "UV_PRERELEASE": "allow", "PIP_PRE": "1", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    environment = installer_environment(tmp_path)
    assert passed.items() <= environment.items()
    assert not environment.keys() & {"UV_PRERELEASE", "PIP_PRE", "AWS_SECRET_ACCESS_KEY"}
    assert environment["HOME"].startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("a>=1.0rc1", True),
        ("a==2.0.dev1", True),
        ("a>=1,<2.0b1", True),
        ("a!=1.0rc1", False),
        ("a>=1.0.post1", False),
        ("a==1.*", False),
        ("a", False),
        ("a @ https://host.example/a-1.0rc1-py3-none-any.whl", True),
    ],
)
def test_only_a_prerelease_in_the_specifier_lists_one(line: str, listed: bool) -> None:
    assert listed_prereleases([line]) == (frozenset({"a"}) if listed else frozenset())


def test_pip_report_becomes_a_lock_with_every_kind_of_source() -> None:
    def item(name: str, url: str, *, direct: bool = False, **info: object) -> dict[str, object]:
        more = info or {"archive_info": {"hashes": {"sha256": "00"}}}
        return {
            "metadata": {"name": name, "version": "1.0"},
            "download_info": {"url": url, **more},
            "is_direct": direct,
        }

    report = {
        "install": [
            item("Wheel_One", "https://files.example/wheel_one-1.0-py3-none-any.whl"),
            item("source", "https://files.example/source-1.0.tar.gz"),
            item("direct", "file:///tmp/a%20b/direct-1.0-py3-none-any.whl", direct=True),
            item("folder", "file:///tmp/folder", direct=True, dir_info={}),
            item("git", "https://host.example/git", direct=True, vcs_info={"vcs": "git", "commit_id": "abc"}),
        ]
    }
    resolution = Resolution.from_pip_report(report)
    assert resolution.packages == dict.fromkeys(("direct", "folder", "git", "source", "wheel-one"), "1.0")
    for part in (
        'path = "/tmp/a b/direct-1.0-py3-none-any.whl"',
        'directory = { path = "/tmp/folder" }',
        'commit-id = "abc"',
        'sdist = { url = "https://files.example/source-1.0.tar.gz", hashes = { sha256 = "00" } }',
        'wheels = [{ url = "https://files.example/wheel_one-1.0-py3-none-any.whl"',
    ):
        assert part in resolution.lock


def bundle_plan(*lines: str, python: str = "3.12") -> Plan:
    metadata = BundleMetadata(
        pip_dependencies=lines, python_version=python, benchmax_version=own_version(), env_class_source=None
    )
    return plan_for_bundle(metadata, wheel=build_own_wheel(), options=ProvisionOptions())


def test_extras_of_our_own_package_stand_for_what_they_ask_for() -> None:
    declared = own_extra("harbor", markers("3.12"))
    assert [Requirement(line).name for line in declared] == ["harbor"]
    assert bundle_plan("benchmax[harbor]>=0.2").requirements == (*declared, "benchmax>=0.2")
    assert bundle_plan("tabulate", "benchmax[Harbor]").requirements == (*declared, "benchmax", "tabulate")


def test_an_extra_asks_for_nothing_where_its_packages_do_not_exist() -> None:
    assert bundle_plan("benchmax[harbor]", python="3.11").requirements == ("benchmax",)
    assert bundle_plan("benchmax[harbor] ; python_version < '3'").requirements == (
        'benchmax[harbor]; python_version < "3"',
    )


def test_extras_of_a_benchmax_from_the_index_are_left_to_it() -> None:
    plan = bundle_plan("benchmax[harbor]==0.2.1")
    assert plan.index_benchmax
    assert plan.requirements == ("benchmax[harbor]==0.2.1",)


def test_an_extra_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(RequirementError, match=r"no such extra\.") as refused:
        bundle_plan("benchmax[harbour]")
    assert "harbor" in refused.value.hint
