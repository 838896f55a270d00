"""Which hosts installers of a provisioning may ask."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from runner.errors import UsageError
from runner.provision import ExtraIndex, ProvisionOptions
from runner.provision.hosts import Hosts, host_of, is_public


def hosts(*requirements: str, lock: Mapping[str, object] | None = None, **options: object) -> Hosts:
    chosen = ProvisionOptions(**options)  # type: ignore[arg-type]
    return Hosts.of(requirements, options=chosen, indexes=chosen.indexes(), lock=lock)


def test_index_comes_with_the_host_of_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCHMAX_INDEX_URL", raising=False)
    assert hosts().named == {("pypi.org", 443), ("files.pythonhosted.org", 443)}


def test_every_index_and_page_that_the_caller_names_is_allowed() -> None:
    found = hosts(
        index_url="https://me:word@packages.example:8443/simple",
        extra_indexes=(ExtraIndex(names=("kit",), url="http://own.example/simple"),),
        find_links=("https://pages.example/links.html",),
        file_hosts=("files.example", "other.example:81"),
    )
    assert found.named == {
        ("packages.example", 8443), ("own.example", 80), ("pages.example", 443),
        ("files.example", 80), ("files.example", 443), ("other.example", 81),
    }  # fmt: skip
    assert not found.allow(("packages.example", 443))


def test_addresses_of_requirements_and_locks_are_the_bundles() -> None:
    lock = {
        "packages": [
            {"name": "a", "wheels": [{"url": "https://wheels.example/a.whl"}]},
            {"name": "b", "vcs": {"url": "https://code.example/b"}},
            {"name": "c", "directory": {"path": "/c"}},
        ]
    }
    found = hosts("kit @ git+https://Git.Example/kit@main", "x @ file:///x", index_url="file:///index", lock=lock)
    assert found.named == frozenset()
    assert found.declared == {("git.example", 443), ("wheels.example", 443), ("code.example", 443)}


def test_what_the_caller_names_too_is_the_callers() -> None:
    found = hosts("kit @ https://own.example/kit.whl", index_url="https://own.example/simple")
    assert found.declared == frozenset()


@pytest.mark.parametrize(
    "address", ["git+ssh://git@host/x", "file:///x", "host:443", "", "https://host:99999/", "https:///x"]
)
def test_other_addresses_have_no_host(address: str) -> None:
    assert host_of(address) is None


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "fe80::1%eth0", "::ffff:10.1.1.1"]
)
def test_addresses_of_this_machine_and_its_network_are_not_public(address: str) -> None:
    assert not is_public(address)


def test_addresses_of_the_internet_are_public() -> None:
    assert is_public("1.1.1.1")
    assert is_public("2606:4700::1111")


@pytest.mark.parametrize("text", ["https://host", "a b", "host:0", "user@host"])
def test_file_host_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="file host"):
        ProvisionOptions(file_hosts=(text,))
