"""Which bundles this process may load, and that nothing else is asked first."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from benchmax.bundle import (
    BundleMetadata,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    IncompatibleRuntimeError,
    validate_bundle_compatibility,
)

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


def made_with(benchmax: str, python: str = RUNNING) -> BundleMetadata:
    return BundleMetadata((), python, benchmax, None)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    version = getattr(request, "param", "0.2.5")

    def answer(name: str) -> str:
        assert name == "benchmax"
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return str(version)

    monkeypatch.setattr(importlib.metadata, "version", answer)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("version", ["0.2", "0.2.0", "0.2.5", "0.2.x", "0.2.0rc1", "0.2.9.dev3", "0.2.99"])
def test_same_series_is_accepted(version: str) -> None:
    validate_bundle_compatibility(made_with(version))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("version", ["0.1.5", "0.3", "1.2.5", "0.20.0"])
def test_other_series_is_refused(version: str) -> None:
    with pytest.raises(IncompatibleBenchmaxError, match=r"major\.minor") as caught:
        validate_bundle_compatibility(made_with(version))
    assert version in str(caught.value)
    assert "0.2.5" in str(caught.value)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("version", ["1", "v0.2.1", "0", "0.x", "0.2rc1", "latest", "0..2"])
def test_version_without_two_leading_numbers_is_refused(version: str) -> None:
    with pytest.raises(IncompatibleBenchmaxError, match="Cannot parse"):
        validate_bundle_compatibility(made_with(version))


@pytest.mark.parametrize("installed", ["main"], indirect=True)
@pytest.mark.usefixtures("installed")
def test_installed_version_must_parse_too() -> None:
    with pytest.raises(IncompatibleBenchmaxError, match=r"Cannot parse.*main"):
        validate_bundle_compatibility(made_with("0.2.5"))


@pytest.mark.usefixtures("installed")
def test_unknown_version_of_the_bundle_is_refused() -> None:
    with pytest.raises(IncompatibleBenchmaxError, match="Cannot verify"):
        validate_bundle_compatibility(made_with("unknown"))


@pytest.mark.parametrize("installed", [None, ""], indirect=True)
@pytest.mark.usefixtures("installed")
def test_unknown_installed_version_is_refused_even_for_the_same() -> None:
    with pytest.raises(IncompatibleBenchmaxError, match="Cannot verify"):
        validate_bundle_compatibility(made_with("not.a.version"))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("python", ["3.8", "3", f"{RUNNING}.1", f"{RUNNING} ", "three"])
def test_other_python_series_is_refused_before_benchmax_is_looked_at(python: str) -> None:
    with pytest.raises(IncompatiblePythonError) as caught:
        validate_bundle_compatibility(made_with("unknown", python))
    assert f"Python {python}" in str(caught.value)
    assert f"Python {RUNNING}" in str(caught.value)


def test_the_real_installation_is_of_its_own_series() -> None:
    validate_bundle_compatibility(made_with(importlib.metadata.version("benchmax")))


@pytest.mark.parametrize("value", [None, {}, b"{}"])
def test_only_metadata_is_judged(value: object) -> None:
    with pytest.raises(TypeError, match="BundleMetadata"):
        validate_bundle_compatibility(value)  # type: ignore[arg-type]


def test_errors_form_the_documented_tree() -> None:
    assert IncompatiblePythonError.__mro__[1:3] == (IncompatibleRuntimeError, Exception)
    assert IncompatibleBenchmaxError.__mro__[1:3] == (IncompatibleRuntimeError, Exception)
