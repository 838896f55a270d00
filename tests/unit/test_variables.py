"""Secret variables: which names they may have, and that their values do not show."""

from __future__ import annotations

from typing import Any

import pytest

from runner.errors import UsageError
from runner.variables import SecretVariables


def test_they_are_a_mapping_that_does_not_show_its_values() -> None:
    variables = SecretVariables({"DATABASE_URL": "postgres://hunter2", "_x9": "y"})
    assert {**variables} == {"DATABASE_URL": "postgres://hunter2", "_x9": "y"}
    assert f"{variables} {variables!r}" == "SecretVariables(DATABASE_URL, _x9) SecretVariables(DATABASE_URL, _x9)"
    assert len(SecretVariables()) == 0


@pytest.mark.parametrize("name", ["", "9X", "A-B", "A=B", "A B", "Ä", "A\n", 5])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pytest.raises(UsageError, match="is not the name of a secret variable"):
        SecretVariables({name: "value"})


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOME", "TMPDIR", "LANG", "PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "LD_LIBRARY_PATH",
        "GLIBC_TUNABLES", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "https_proxy", "HTTPS_PROXY", "No_Proxy",
    ],
)  # fmt: skip
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"the secret {name} would replace a variable that every worker has"):
        SecretVariables({name: "value"})


@pytest.mark.parametrize("value", ["", "hunter2\0", None, 5, b"hunter2"])
def test_a_value_that_no_variable_can_have_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(UsageError, match="the secret TOKEN has no value that a variable can have") as caught:
        SecretVariables({"TOKEN": value})
    assert "hunter2" not in str(caught.value)
