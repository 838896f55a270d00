"""What the guides show is what happens: every block of every page is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages.running import blocks, commands, matches, run_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN = ("bundling.md", "deploy.md", "first-hour.md", "service.md")
PAGES = sorted([*DOCS.glob("guides/*.md"), *(DOCS / name for name in RUN)])
WRITTEN = sorted(DOCS.rglob("*.md"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_everything_that_a_guide_shows_happens(page: Path, shared_cache: Path, tmp_path: Path) -> None:
    run_page(page.read_text("utf-8"), name_of(page), tmp_path, shared_cache)


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
        path = page.parent / target if target else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, anchor


def test_the_first_page_lists_every_other() -> None:
    listed = set(re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "README.md").read_text("utf-8")))
    assert listed >= {str(page.relative_to(DOCS)) for page in WRITTEN} - {"README.md"}


# -- the reader of pages itself --------------------------------------------------------------------------------


def test_a_page_is_cut_into_blocks_with_their_files() -> None:
    page = "text\n\n```python\n# a.py\nx = 1\n```\n\n```json file=b.json\n{}\n```\n```console fails\n$ false\n```\n"
    found = blocks(page, "page")
    assert [(block.language, block.file, block.place) for block in found] == [
        ("python", "a.py", "page:3"),
        ("json", "b.json", "page:8"),
        ("console", None, "page:11"),
    ]
    assert found[2].words == ("fails",)


def test_a_console_block_is_cut_into_commands_with_what_they_show() -> None:
    found = commands("$ one \\\n    more\nshown\n\nshown, too\n$ two\n")
    assert [command.line for command in found] == ["one \\\n    more", "two"]
    assert [command.shown for command in found] == ["shown\n\nshown, too\n", ""]


@pytest.mark.parametrize(
    ("shown", "came", "same"),
    [
        ("a   b\n", "a b  \n", True),
        ("a … c\n", "a bb c\n", True),
        ("first\n…\nlast\n", "first\nsecond\nthird\nlast\n", True),
        ("first\n…\nlast\n", "first\nlast\n", True),
        ("(1.5)\n", "(1x5)\n", False),
        ("a\n", "a\nb\n", False),
        ("a\nb\n", "a\n", False),
        ("a … c\n", "a\nc\n", False),
    ],
)
def test_output_is_compared_line_by_line(shown: str, came: str, same: bool) -> None:
    assert matches(shown, came) is same


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```console\n$ false\n```\n", "page:1: false\nexit code 1"),
        ("```console fails\n$ true\n```\n", "page:1: true\nexit code 0"),
        ("```console\n$ echo a\nb\n```\n", "shown:\nb\n\ncame:\na\n"),
        ("```python\nraise SystemExit(3)\n```\n", "exit code 3"),
        ("```python\n# a.py\nx = 1\n```\n\n```diff file=a.py\n-x = 2\n+x = 3\n```\n", "a.py has 0 times"),
        ("```yaml\na: 1\n```\n", "page:1: a block of yaml is not run"),
    ],
)
def test_a_page_that_shows_something_else_is_caught(page: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=re.escape(complaint)):
        run_page(page, "page", tmp_path, tmp_path)


def test_the_blocks_of_a_page_share_a_folder_variables_and_jobs(tmp_path: Path) -> None:
    page = """
```console
$ mkdir deep && cd deep
$ export SAID=aloud
$ sleep 60 &
```

```python
# said.py
import os
print(os.environ["SAID"])
```

```diff file=said.py
 import os
+
+print("it was")
 print(os.environ["SAID"])
```

```console
$ python said.py
it was
aloud
$ jobs -r
…sleep 60…
```
"""
    run_page(page, "page", tmp_path, tmp_path)
    assert (tmp_path / "deep" / "said.py").exists()
