"""What README and CHANGELOG say is true: their code runs, their tables are complete, their version is ours."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from runner.errors import RunnerError
from tests.pages.running import Block, blocks, run_page

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BLOCKS = blocks(README, "README.md")


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_first_environment_runs_as_the_readme_says(shared_cache: Path, tmp_path: Path) -> None:
    # what a real model answers, and how long it takes, is another matter on every machine
    varies = r"^(\d-\w+-\d |12 ok .* in |ended: |mean rewards: |sandbox: ).*$"
    first = [f"```{block.language}\n{block.text}```\n" for block in BLOCKS[:2]]
    page = re.sub(varies, r"\1…", "".join(first), flags=re.MULTILINE)
    run_page(page, "README.md", tmp_path, shared_cache)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=lambda b: b.place)
def test_every_python_block_compiles(block: Block) -> None:
    compile(block.text, block.place, "exec")


def test_the_error_table_is_the_error_tree() -> None:
    def below(kind: type[RunnerError]) -> list[type[RunnerError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    rows = re.findall(r"^\| `(\w+Error)` \| `([\w-]+)` \| (\w+) \|$", README, flags=re.MULTILINE)
    real = [kind for kind in below(RunnerError)[1:] if kind.__module__ == "runner.errors"]
    assert sorted(rows) == sorted((kind.__name__, kind.code, kind.fault) for kind in real)


def test_the_dependency_table_names_every_dependency() -> None:
    section = README.partition("## Dependencies")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE) for name in re.findall("`(.*?)`", row)
    }
    extra = [text for texts in PROJECT["optional-dependencies"].values() for text in texts]
    assert named == {Requirement(text).name for text in [*PROJECT["dependencies"], *extra]}


def test_every_link_to_a_file_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_the_newest_changes_are_of_this_version() -> None:
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"]
