"""Artifacts on disk: read once, never unpickled, written whole; and whose fault it is when one cannot be read."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchmax.bundle import Bundle, BundleMetadata, bundle_digest
from runner.artifact import METADATA_NAME, PICKLE_NAME, Artifact, read_artifact, write_artifact, write_atomically
from runner.errors import ArtifactError, UsageError

PLAIN = Path(__file__).parents[1] / "fixtures" / "contract" / "bundles" / "plain"


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (99,)


def a_bundle(pickled: bytes = b"pickle") -> Bundle:
    metadata = BundleMetadata(
        pip_dependencies=("six",), python_version="3.12", benchmax_version="0.2.5", env_class_source="class É: ..."
    )
    return Bundle(pickled, metadata)


def test_an_artifact_made_elsewhere_is_read_with_its_digest() -> None:
    artifact = read_artifact(PLAIN)
    assert artifact.bundle.pickled == (PLAIN / PICKLE_NAME).read_bytes()
    assert artifact.bundle.metadata.to_json_bytes() == (PLAIN / METADATA_NAME).read_bytes()
    assert artifact.digest == bundle_digest(artifact.bundle)
    assert artifact.path == PLAIN


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "artifact"
    written = write_artifact(a_bundle(), folder)
    assert read_artifact(folder) == written == Artifact(a_bundle(), bundle_digest(a_bundle()), folder)
    assert sorted(path.name for path in folder.iterdir()) == [PICKLE_NAME, METADATA_NAME]


def test_a_pickle_that_would_run_code_is_read_without_running_it(tmp_path: Path) -> None:
    write_artifact(a_bundle(pickle.dumps(Trap())), tmp_path)
    assert read_artifact(tmp_path).bundle.pickled == pickle.dumps(Trap())


def test_other_files_in_the_folder_are_not_looked_at(tmp_path: Path) -> None:
    write_artifact(a_bundle(), tmp_path)
    (tmp_path / "env-facts.json").write_bytes(b"\xff not json")
    assert read_artifact(tmp_path).bundle == a_bundle()


def test_a_bundle_in_memory_an_artifact_and_a_folder_are_all_taken(tmp_path: Path) -> None:
    written = write_artifact(a_bundle(), tmp_path)
    assert Artifact.of(written) is written
    assert Artifact.of(a_bundle()) == Artifact(a_bundle(), written.digest, None)
    assert Artifact.of(tmp_path) == Artifact.of(str(tmp_path)) == written


@pytest.mark.parametrize("missing", [PICKLE_NAME, METADATA_NAME])
def test_a_missing_file_is_the_callers_mistake(tmp_path: Path, missing: str) -> None:
    write_artifact(a_bundle(), tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(UsageError) as caught:
        read_artifact(tmp_path)
    assert f"holds no {missing}." in str(caught.value)
    assert "benchmax bundle" in caught.value.hint


def test_a_missing_folder_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no artifact at .*: no such folder"):
        read_artifact(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=r"no artifact at .*: not a folder"):
        read_artifact(tmp_path / "file")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"python_version": "3.12"}',
        b"[" * 100_000,
        b"1" * 5000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_broken_metadata_is_the_bundles_fault(tmp_path: Path, data: bytes) -> None:
    write_artifact(a_bundle(), tmp_path)
    (tmp_path / METADATA_NAME).write_bytes(data)
    with pytest.raises(ArtifactError, match=r"env-metadata\.json is broken: .+undle the environment") as caught:
        read_artifact(tmp_path)
    assert caught.value.fault == "bundle"


def test_an_empty_pickle_is_the_bundles_fault(tmp_path: Path) -> None:
    write_artifact(a_bundle(), tmp_path)
    (tmp_path / PICKLE_NAME).write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"env-cls\.pkl is empty\."):
        read_artifact(tmp_path)


@pytest.mark.parametrize("name", [PICKLE_NAME, METADATA_NAME])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to a device"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    write_artifact(a_bundle(), tmp_path)
    (tmp_path / name).unlink()
    match kind:
        case "pipe":
            os.mkfifo(tmp_path / name)
        case "folder":
            (tmp_path / name).mkdir()
        case _:
            (tmp_path / name).symlink_to("/dev/zero" if kind == "link to a device" else "/dev/full")
    with pytest.raises(UsageError, match=f"{name} is not a regular file"):
        read_artifact(tmp_path)


def test_a_folder_that_cannot_be_written_is_the_callers_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match=r"cannot write the artifact to .*file: .+\. Choose another --out\."):
        write_artifact(a_bundle(), tmp_path / "file")


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.mkdir()
    with pytest.raises(OSError):
        write_atomically(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_readers_see_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "file"
    contents = {bytes([letter]) * 200_000 for letter in b"ab"}
    write_atomically(target, min(contents))
    seen: set[bytes] = set()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            seen.add(target.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        for content in contents:
            write_atomically(target, content)
    over.set()
    reader.join()
    assert seen <= contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_written_has_the_permissions_of_an_ordinary_new_file(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from runner.artifact import write_atomically
os.umask(0o027)
write_atomically(Path(sys.argv[1]), b"x")
assert os.umask(0) == 0o027
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=True, cwd=Path(__file__).parents[2])
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_importing_the_module_does_not_load_what_could_unpickle() -> None:
    code = (
        "import sys, runner.artifact; print(*sorted({'cloudpickle', 'benchmax.bundle.loading'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert "cloudpickle" not in result.stdout
