"""Bundles in memory and their digests."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import benchmax.bundle
from benchmax.bundle import Bundle, BundleMetadata, bundle_digest

ARTIFACTS = Path(__file__).parent.parent / "fixtures" / "contract" / "bundles"
EXPECTED = json.loads((ARTIFACTS / "expected.json").read_text())
METADATA = BundleMetadata(("requests>=2",), "3.12", "0.2.0", "é\n")


def read(name: str) -> Bundle:
    folder = ARTIFACTS / name
    metadata = BundleMetadata.from_json_bytes((folder / "env-metadata.json").read_bytes())
    return Bundle((folder / "env-cls.pkl").read_bytes(), metadata)


def test_digest_of_the_documented_example() -> None:
    bundle = Bundle(b"pickle", METADATA)
    assert bundle_digest(bundle) == "cb2f457357627966a762228aee4615b00efca28556418fd40d7ed641e152a6a4"


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_digest_of_a_recorded_artifact(name: str) -> None:
    bundle = read(name)
    assert bundle_digest(bundle) == EXPECTED[name]["digest"]
    assert bundle.metadata.to_json_bytes() == (ARTIFACTS / name / "env-metadata.json").read_bytes()


def test_digest_depends_on_where_the_parts_meet() -> None:
    moved = BundleMetadata((), "3.12", "0.2.0", None)
    assert bundle_digest(Bundle(b"a", METADATA)) != bundle_digest(Bundle(b"b", METADATA))
    assert bundle_digest(Bundle(b"a", METADATA)) != bundle_digest(Bundle(b"a", moved))


@pytest.mark.parametrize("value", [None, b"pickle", METADATA, (b"pickle", METADATA)])
def test_only_bundles_have_digests(value: object) -> None:
    with pytest.raises(TypeError, match="Bundle"):
        bundle_digest(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pickled", "metadata"), [("text", METADATA), (bytearray(b"x"), METADATA), (b"x", {}), (b"x", None)]
)
def test_parts_of_another_type_are_refused(pickled: object, metadata: object) -> None:
    with pytest.raises(TypeError):
        Bundle(pickled, metadata)  # type: ignore[arg-type]


def test_bundle_is_frozen_and_pickles_plainly() -> None:
    bundle = Bundle(b"pickle", METADATA)
    with pytest.raises(FrozenInstanceError):
        bundle.pickled = b""  # type: ignore[misc]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(bundle, protocol)) == bundle


def test_pickle_made_where_benchmax_bundle_is_one_module_loads() -> None:
    # written out: new object of benchmax.bundle.X, then its state as a dict
    text = (
        b"cbenchmax.bundle\nBundle\n)\x81(dS'pickled'\nBpickle..s"
        b"S'metadata'\ncbenchmax.bundle\nBundleMetadata\n)\x81(dS'pip_dependencies'\n(S'requests>=2'\nts"
        b"S'python_version'\nS'3.12'\nsS'benchmax_version'\nS'0.2.0'\nsS'env_class_source'\nV\xe9\\u000a\nsbsb."
    ).replace(b"Bpickle..", b"C\x06pickle")
    assert pickle.loads(text) == Bundle(b"pickle", METADATA)


def test_public_names_pickle_under_the_public_module() -> None:
    public = [
        "Bundle", "BundleMetadata", "BundlingError", "IncompatibleRuntimeError", "IncompatiblePythonError",
        "IncompatibleBenchmaxError", "bundle_digest", "validate_bundle_compatibility", "dump_bundle", "load_bundle",
        "unregistered_local_refs",
    ]  # fmt: skip
    for name in public:
        value = getattr(benchmax.bundle, name)
        assert value.__module__ == "benchmax.bundle"
        assert pickle.loads(pickle.dumps(value)) is value
    assert not hasattr(benchmax.bundle, "__all__")
