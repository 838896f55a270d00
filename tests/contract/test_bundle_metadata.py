"""Metadata and the canonical spelling of requirements."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from benchmax.bundle import Bundle, BundleMetadata, bundle_digest

FIXTURES = Path(__file__).parent.parent / "fixtures" / "contract"
VECTORS = json.loads((FIXTURES / "metadata.json").read_text())
EXAMPLE = (
    '{"benchmax_version":"0.2.0","env_class_source":"é\\n","pip_dependencies":["requests>=2"],"python_version":"3.12"}'
)


def metadata(*dependencies: object, source: str | None = None) -> BundleMetadata:
    return BundleMetadata(dependencies, "3.12", "0.2.0", source)  # type: ignore[arg-type]


def normalized(*dependencies: object) -> tuple[str, ...]:
    return metadata(*dependencies).pip_dependencies


# requirements


@pytest.mark.parametrize(
    ("written", "rendered"),
    [
        ('Widget[B,a] < 2, >= 1 ; python_version < "3.13"', 'widget[a,b]<2,>=1; python_version < "3.13"'),
        ("  requests >= 2\n", "requests>=2"),
        ("Zope.Interface", "zope-interface"),
        ("a_b-c==1.0", "a-b-c==1.0"),
        ("a__B..c", "a-b-c"),
        ("x[Some_Extra,some-extra,A]", "x[a,some-extra]"),
        ("x (>=1)", "x>=1"),
        ("x!=1.4.5,~=1.4.2", "x!=1.4.5,~=1.4.2"),
        ("x~=1.4.2,!=1.4.5", "x!=1.4.5,~=1.4.2"),
        ("pkg@https://host.example/p-1.0.tar.gz", "pkg @ https://host.example/p-1.0.tar.gz"),
        ("pkg[z] @ git+https://host.example/p@main", "pkg[z] @ git+https://host.example/p@main"),
        ("x; os_name == 'nt'", 'x; os_name == "nt"'),
    ],
)
def test_requirement_is_rendered_canonically(written: str, rendered: str) -> None:
    assert normalized(written) == (rendered,)


def test_requirements_are_sorted_as_text() -> None:
    assert normalized("b", "a>1", "a-b", "C[x]") == ("a-b", "a>1", "b", "c[x]")


def test_url_requirement_with_a_marker_can_be_read_back() -> None:
    (rendered,) = normalized("pkg @ https://host.example/p.tar.gz ; os_name == 'nt'")
    assert rendered == 'pkg @ https://host.example/p.tar.gz ; os_name == "nt"'
    assert Requirement(rendered).url == "https://host.example/p.tar.gz"
    assert normalized(rendered) == (rendered,)


def test_marker_value_with_a_quote_is_never_rendered_unreadably() -> None:
    # older releases of packaging print it without escaping the quote
    try:
        (rendered,) = normalized("x; os_name == 'a\"b'")
    except ValueError as error:
        assert "PEP 508" in str(error)
    else:
        assert str(Requirement(rendered).marker) == str(Requirement("x; os_name == 'a\"b'").marker)


@pytest.mark.parametrize("other", ["X", "x[extra]", "x==2", "x; os_name == 'nt'", "x @ https://host.example/x.whl"])
def test_same_project_twice_is_refused_whatever_else_differs(other: str) -> None:
    with pytest.raises(ValueError, match="target 'x' is declared more than once"):
        normalized("x>=1; os_name == 'posix'", "y", other)


@pytest.mark.parametrize("entry", ["", "  ", "not a requirement !", "x>=", 3, None, b"x"])
def test_invalid_requirement_is_refused_with_its_index(entry: object) -> None:
    with pytest.raises(ValueError, match=r"dependency at index 1 .*PEP 508"):
        normalized("fine", entry)


@pytest.mark.parametrize("value", ["requests", b"requests", None, {"requests"}, iter(["requests"]), 3])
def test_requirements_that_are_no_sequence_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="sequence"):
        BundleMetadata(value, "3.12", "0.2.0", None)  # type: ignore[arg-type]


def test_any_sequence_becomes_a_tuple() -> None:
    assert BundleMetadata(["b", "a"], "3.12", "0.2.0", None).pip_dependencies == ("a", "b")  # type: ignore[arg-type]


_words = st.text("aB3", min_size=1, max_size=3)
_names = st.builds("{}{}{}".format, _words, st.sampled_from(["", "-", "_", ".", "__"]), _words)
_versions = st.builds(
    "{}{}{}".format,
    st.sampled_from([">=", "<", "==", "!=", "~=", "<=", ">"]),
    st.sampled_from(["1.0", "2.3.4", "0.1", "1!2.0", "10.20"]),
    st.sampled_from(["", "", "rc1", ".dev3", ".post1"]),
)
_markers = st.sampled_from(
    ["", "python_version < '3.13'", "os_name=='nt' or (extra == 'Foo_Bar' and sys_platform != \"win32\")"]
)


@st.composite
def _requirements(draw: st.DrawFn) -> str:
    extras = draw(st.lists(_names, max_size=3))
    text = draw(_names) + (f"[{','.join(extras)}]" if extras else "")
    marker = draw(_markers)
    if draw(st.booleans()):
        url = draw(st.sampled_from(["https://h.example/p-1.whl", "git+ssh://git@h.example/p@v1#egg=p", "file:///p;x"]))
        return f"{text} @ {url}" + (f" ; {marker}" if marker else "")
    return text + " , ".join(draw(st.lists(_versions, max_size=3))) + (f";{marker}" if marker else "")


@given(st.lists(_requirements(), max_size=4))
def test_normalising_is_idempotent_and_keeps_the_meaning(written: list[str]) -> None:
    projects = [metadata(entry).pip_dependencies[0].partition("[")[0] for entry in written]
    try:
        once = normalized(*written)
    except ValueError as error:
        assert "more than once" in str(error)
        return
    assert len(projects) == len(written)
    assert normalized(*once) == once
    assert list(once) == sorted(once)
    for entry in written:
        wanted = Requirement(entry)
        assert any(
            wanted.specifier == got.specifier and wanted.url == got.url and str(wanted.marker) == str(got.marker)
            for got in map(Requirement, once)
        )


# fields


@pytest.mark.parametrize("field", ["python_version", "benchmax_version"])
@pytest.mark.parametrize("value", ["", " \t", None, 3.12, b"3.12"])
def test_version_must_be_a_non_blank_string(field: str, value: object) -> None:
    fields: dict[str, object] = {"python_version": "3.12", "benchmax_version": "0.2.0", field: value}
    with pytest.raises(ValueError, match=field):
        BundleMetadata(pip_dependencies=(), env_class_source=None, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"class E: ...", 3, ["class"]])
def test_source_must_be_text_or_none(value: object) -> None:
    with pytest.raises(TypeError, match="env_class_source"):
        BundleMetadata((), "3.12", "0.2.0", value)  # type: ignore[arg-type]


def test_all_four_fields_are_required() -> None:
    with pytest.raises(TypeError, match="env_class_source"):
        BundleMetadata((), "3.12", "0.2.0")  # type: ignore[call-arg]


def test_text_that_utf8_cannot_carry_is_refused_at_construction() -> None:
    with pytest.raises(ValueError, match="env_class_source is not valid Unicode"):
        metadata(source="\ud800")


def test_metadata_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        metadata().python_version = "3.11"  # type: ignore[misc]


# JSON


def test_canonical_json_is_sorted_compact_and_unescaped() -> None:
    assert metadata("requests>=2", source="é\n").to_json_bytes() == EXAMPLE.encode()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["pip_dependencies"]))
def test_recorded_metadata_and_digest_are_reproduced(vector: dict[str, object]) -> None:
    recorded = json.loads(str(vector["json"]))
    made = BundleMetadata(
        vector["pip_dependencies"],  # type: ignore[arg-type]
        recorded["python_version"],
        recorded["benchmax_version"],
        recorded["env_class_source"],
    )
    assert made.to_json_bytes() == str(vector["json"]).encode()
    assert bundle_digest(Bundle(b"abc", made)) == vector["digest_with_pickle_abc"]
    assert BundleMetadata.from_json_bytes(made.to_json_bytes()) == made


@given(
    st.lists(_requirements(), max_size=3),
    st.text(min_size=1).filter(str.strip),
    st.text(min_size=1).filter(str.strip),
    st.none() | st.text(),
)
def test_json_round_trip_is_the_identity(
    dependencies: list[str], python_version: str, benchmax_version: str, source: str | None
) -> None:
    try:
        made = BundleMetadata(tuple(dependencies), python_version, benchmax_version, source)
    except ValueError as error:
        assume("more than once" not in str(error) and "Unicode" not in str(error))
        raise
    assert BundleMetadata.from_json_bytes(made.to_json_bytes()) == made
    assert set(json.loads(made.to_json_bytes())) == set(vars(made))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{}", "bytes"),
        (bytearray(b"{}"), "bytes"),
        (b"\xff", "UTF-8"),
        (b"{", "JSON"),
        (b"", "JSON"),
        (b"[" * 200_000, "JSON"),
        (b"[]", "object"),
        (b"null", "object"),
    ],
)
def test_anything_but_a_json_object_is_refused(data: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BundleMetadata.from_json_bytes(data)  # type: ignore[arg-type]


def test_unknown_keys_are_refused_sorted_and_before_missing_ones() -> None:
    with pytest.raises(ValueError, match=r"unsupported keys \['a', 'z'\].*re-bundle"):
        BundleMetadata.from_json_bytes(b'{"z": 1, "a": 2}')


@pytest.mark.parametrize("name", ["pip_dependencies", "python_version", "benchmax_version"])
def test_missing_key_is_named(name: str) -> None:
    content = json.loads(EXAMPLE)
    del content[name]
    with pytest.raises(ValueError, match=name):
        BundleMetadata.from_json_bytes(json.dumps(content).encode())


def test_missing_source_means_none() -> None:
    content = json.loads(EXAMPLE)
    del content["env_class_source"]
    assert BundleMetadata.from_json_bytes(json.dumps(content).encode()).env_class_source is None


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("pip_dependencies", "requests", TypeError),
        ("pip_dependencies", ["!"], ValueError),
        ("python_version", 3.12, ValueError),
        ("benchmax_version", " ", ValueError),
        ("env_class_source", 1, TypeError),
        ("env_class_source", "\ud800", ValueError),
    ],
)
def test_values_read_from_json_pass_the_same_checks(key: str, value: object, error: type[Exception]) -> None:
    content = {**json.loads(EXAMPLE), key: value}
    with pytest.raises(error):
        BundleMetadata.from_json_bytes(json.dumps(content).encode())


# pickled form


def test_metadata_pickles_as_a_dict_under_its_public_name() -> None:
    made = metadata("requests", source="class E: ...")
    assert BundleMetadata.__module__ == "benchmax.bundle"
    assert made.__reduce_ex__(2)[2] == vars(made)
    assert pickle.loads(pickle.dumps(made)) == made
