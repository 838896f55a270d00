"""Whether two version ranges have anything in common is known without an index."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet

from runner.errors import RequirementError
from runner.provision.lock import markers
from runner.provision.ranges import check_pins, overlap


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("==1.0", ">=2.0,<4", False),
        ("==2.0", ">=2.0,<4", True),
        ("==4", ">=2.0,<4", False),
        ("==3.9.1", ">=2.0,<4", True),
        ("", ">=2.0,<4", True),
        ("<2", ">=2.0,<4", False),
        ("<=2", ">=2.0,<4", True),
        (">=4", ">=2.0,<4", False),
        (">3.99", ">=2.0,<4", True),
        ("~=1.9", ">=2.0,<4", False),
        ("~=2.1.3", ">=2.0,<4", True),
        ("==1.*", ">=2.0,<4", False),
        ("==3.*", ">=2.0,<4", True),
        ("!=2.0", ">=2.0,<4", True),
        ("!=2.*", ">=2.0,<3", False),
        ("!=2.*", ">=2.0,<4", True),
        (">=4.0rc1", ">=2.0,<4", False),
        ("==3.0rc1", ">=2.0,<4", True),
        ("<3.0,>2.5,!=2.7", ">=2.0,<4", True),
        (">1!0", ">=2.0", True),
        ("===whatever", ">=2.0", True),
    ],
)
def test_ranges_overlap(one: str, other: str, common: bool) -> None:
    assert overlap(SpecifierSet(one), SpecifierSet(other)) is common
    assert overlap(SpecifierSet(other), SpecifierSet(one)) is common


def test_error_names_pin_and_range() -> None:
    with pytest.raises(RequirementError) as caught:
        check_pins(["OpenAI==1.0"], ["openai>=2,<4"], environment=markers("3.12"), benchmax="0.2.6")
    assert "the bundle wants OpenAI==1.0, but a worker of benchmax 0.2.6 needs openai<4,>=2" in caught.value.message


@pytest.mark.parametrize(
    "line", ["other==1", "openai @ https://h.example/openai-1-py3-none-any.whl", "openai==1; python_version < '3.9'"]
)
def test_what_cannot_be_told_beforehand_is_left_to_the_installer(line: str) -> None:
    check_pins([line], ["openai>=2,<4"], environment=markers("3.12"), benchmax="0.2.6")
