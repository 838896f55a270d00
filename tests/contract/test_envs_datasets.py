"""Datasets in memory and from files, and paths below a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmax.envs import Dataset, Example, JsonlDataset
from benchmax.envs.base import resolve_dataset_path
from benchmax.envs.dataset import validate_max_examples

THREE = [Example(str(number), number) for number in range(3)]


def to_example(row: dict[str, Any]) -> Example[Any]:
    return Example(str(row["n"]), row)


def test_a_dataset_is_a_snapshot() -> None:
    examples = list(THREE)
    dataset = Dataset(examples)
    examples.clear()
    assert len(dataset) == 3
    assert list(dataset) == THREE


def test_indices_behave_as_on_a_tuple() -> None:
    dataset = Dataset(THREE)
    assert dataset[0] is THREE[0]
    assert dataset[-1] is THREE[-1]
    assert dataset[1:] == tuple(THREE[1:])
    with pytest.raises(IndexError):
        dataset[3]


def test_an_empty_dataset_is_legal_and_falsy() -> None:
    empty: Dataset[Any] = Dataset([])
    assert not empty
    assert Dataset(THREE)


def test_a_dataset_cannot_be_changed_and_does_not_copy_payloads() -> None:
    payload: dict[str, Any] = {}
    dataset: Any = Dataset([Example("e", payload)])
    assert dataset[0].payload is payload
    with pytest.raises(TypeError):
        dataset[0] = THREE[0]


@pytest.mark.parametrize("value", [None, 1, 10**9])
def test_max_examples_passes_legal_values_unchanged(value: Any) -> None:
    assert validate_max_examples(value) == value


@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, "1"])
def test_max_examples_refuses_everything_else(value: Any) -> None:
    with pytest.raises(ValueError, match="max_examples"):
        validate_max_examples(value)


def lines(tmp_path: Path, *content: str) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(content), encoding="utf-8")
    return path


def test_rows_are_read_in_order_and_blank_lines_skipped(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"n": 1}', "", "   ", ' {"n": "é"}  ', "")
    dataset = JsonlDataset(path, row_to_example=to_example)
    assert isinstance(dataset, Dataset)
    assert [example.id for example in dataset] == ["1", "é"]
    assert len(JsonlDataset(str(path), row_to_example=to_example)) == 2


def test_max_examples_is_checked_before_the_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_examples"):
        JsonlDataset(tmp_path / "missing", row_to_example=to_example, max_examples=0)
    with pytest.raises(FileNotFoundError):
        JsonlDataset(tmp_path / "missing", row_to_example=to_example)


@pytest.mark.parametrize("broken", ["{", "nonsense", "\ufeff{}", "[" * 100_000])
def test_a_line_that_is_no_json_is_named_with_its_number(tmp_path: Path, broken: str) -> None:
    path = lines(tmp_path, '{"n": 1}', "", broken)
    with pytest.raises(ValueError, match="invalid JSON") as caught:
        JsonlDataset(path, row_to_example=to_example)
    assert f"{path}:3" in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("row", ["[]", "1", "null", '"x"'])
def test_a_row_that_is_no_object_is_named_with_its_number(tmp_path: Path, row: str) -> None:
    path = lines(tmp_path, "", row)
    with pytest.raises(TypeError) as caught:
        JsonlDataset(path, row_to_example=to_example)
    assert f"{path}:2" in str(caught.value)


def test_the_parser_is_lenient_about_nan_and_repeated_keys(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"n": 1, "n": 2, "x": NaN}')
    (example,) = JsonlDataset(path, row_to_example=to_example)
    assert example.id == "2"
    assert example.payload["x"] != example.payload["x"]


def test_an_exception_of_row_to_example_gets_a_note_and_stays_itself(tmp_path: Path) -> None:
    failure = KeyError("n")

    def fail(row: dict[str, Any]) -> Example[Any]:
        raise failure

    path = lines(tmp_path, "{}")
    with pytest.raises(KeyError) as caught:
        JsonlDataset(path, row_to_example=fail)
    assert caught.value is failure
    assert f"{path}:1" in "".join(failure.__notes__)


def test_a_result_that_is_no_example_is_named_with_its_type(tmp_path: Path) -> None:
    wrong: Any = lambda row: 3  # noqa: E731
    path = lines(tmp_path, "{}")
    with pytest.raises(TypeError, match="int") as caught:
        JsonlDataset(path, row_to_example=wrong)
    assert f"{path}:1" in str(caught.value)


def test_lines_after_max_examples_are_not_even_parsed(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"n": 1}', '{"n": 2}', "broken")
    assert len(JsonlDataset(path, row_to_example=to_example, max_examples=2)) == 2


def test_repeated_ids_are_accepted(tmp_path: Path) -> None:
    assert len(JsonlDataset(lines(tmp_path, '{"n": 1}', '{"n": 1}'), row_to_example=to_example)) == 2


def test_a_path_below_the_folder_is_resolved_and_need_not_exist(tmp_path: Path) -> None:
    assert resolve_dataset_path(tmp_path, "a/b.jsonl") == tmp_path.resolve() / "a" / "b.jsonl"
    assert resolve_dataset_path(str(tmp_path), Path("a/../b")) == tmp_path.resolve() / "b"
    assert resolve_dataset_path(tmp_path, "") == tmp_path.resolve()


def test_the_folder_is_user_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_dataset_path("~", "x") == tmp_path.resolve() / "x"


def test_an_absolute_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="relative to base_dir"):
        resolve_dataset_path(tmp_path, tmp_path / "x")


def test_a_path_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stay within"):
        resolve_dataset_path(tmp_path, "../x")


def test_a_symlink_out_of_the_folder_is_refused_and_one_inside_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "inside").symlink_to(root / "real")
    (root / "outside").symlink_to(tmp_path)
    assert resolve_dataset_path(root, "inside/x") == root.resolve() / "real" / "x"
    with pytest.raises(ValueError, match="stay within"):
        resolve_dataset_path(root, "outside/x")
