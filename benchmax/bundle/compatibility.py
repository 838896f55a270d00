"""Whether this process may load a bundle, told from its metadata alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmax.bundle.errors import IncompatibleBenchmaxError, IncompatiblePythonError
from benchmax.bundle.metadata import BundleMetadata

UNKNOWN_VERSION: Final = "unknown"


def running_python() -> str:
    """Return the series of this interpreter, as `major.minor`."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def running_benchmax() -> str:
    """Return the version of the installed distribution `benchmax`, or `unknown` when none is installed."""
    if (named := _named_version()) is not None:
        return named
    import importlib.metadata

    try:
        version: object = importlib.metadata.version("benchmax")
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN_VERSION
    # a damaged installation has metadata without a version
    return version if isinstance(version, str) and version.strip() else UNKNOWN_VERSION


def _named_version() -> str | None:
    """Return the version in the name of the distribution's folder beside this package, if there is just that one.

    Loading what reads a distribution's metadata takes longer than everything else that is loaded here.
    """
    folders = [*Path(__file__).parents[2].glob("benchmax-*.dist-info")]
    if len(folders) != 1 or not (folders[0] / "METADATA").is_file():
        return None
    return folders[0].stem.removeprefix("benchmax-")


def validate_bundle_compatibility(metadata: BundleMetadata) -> None:
    """Check that a bundle was made for this Python series and this benchmax series.

    Args:
        metadata: The bundle's metadata; the pickle is not needed.

    Raises:
        TypeError: not a `BundleMetadata`.
        IncompatiblePythonError: the Python series differ.
        IncompatibleBenchmaxError: the benchmax series differ, or one of them cannot be told.
    """
    if not isinstance(metadata, BundleMetadata):
        raise TypeError(f"metadata must be BundleMetadata, got {type(metadata).__name__}.")
    running = running_python()
    if metadata.python_version != running:
        raise IncompatiblePythonError(
            f"The bundle was made with Python {metadata.python_version}, this process runs Python {running}. "
            f"Load it with Python {metadata.python_version}, or re-bundle with Python {running}."
        )
    _check_benchmax(metadata.benchmax_version, running_benchmax())


def _check_benchmax(made_with: str, installed: str) -> None:
    if UNKNOWN_VERSION in (made_with, installed):
        raise IncompatibleBenchmaxError(
            f"Cannot verify benchmax compatibility: the bundle was made with {made_with}, "
            f"installed is {installed}. Install the distribution `benchmax` here, or re-bundle where it is installed."
        )
    made_series, installed_series = _series(made_with), _series(installed)
    if made_series != installed_series:
        raise IncompatibleBenchmaxError(
            f"The bundle was made with benchmax {made_with}, installed is {installed}: the major.minor parts must "
            f"be equal. Install benchmax {made_series[0]}.{made_series[1]}, or re-bundle with {installed}."
        )


def _series(version: str) -> tuple[int, int]:
    major, _, rest = version.partition(".")
    try:
        return int(major), int(rest.partition(".")[0])
    except ValueError as error:
        raise IncompatibleBenchmaxError(
            f"Cannot parse the benchmax version {version!r}: it must begin with two numbers, as in 0.2."
        ) from error
