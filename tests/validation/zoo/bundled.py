"""Defects of what was bundled: secrets in it, modules that are not, and code that does not load."""

from __future__ import annotations

import os
from typing import Any

from benchmax.auth import StaticBearerAuth
from benchmax.envs import ValidationDiagnostic
from tests.validation.zoo.sound import Sound

PASSWORD_URL = "postgres://reader:tr0ub4dor-and-3@db.example/scores"


class KeyInAConstant(Sound):
    finds = "secret-captured"
    key = "sk-0123456789abcdefghijklmnopqrstuvwxyz"


class PasswordInAGlobal(Sound):
    finds = "secret-captured"

    def controls(self) -> dict[str, Any]:
        return {"metadata": {"scores": str(len(PASSWORD_URL))}}


class TokenInAnObject(Sound):
    finds = "secret-captured"
    auth = StaticBearerAuth("a1b2c3d4e5f6a7b8c9d0")


class WholeEnvironment(Sound):
    finds = "environment-captured"
    settings = os.environ  # as `from os import environ` has it


class ImportWhenItRuns(Sound):
    finds = "undeclared-dependency"

    def run_tool(self, call: dict[str, Any]) -> str:
        from nobody_brings_this.inside import multiply  # type: ignore[import-not-found]

        return str(multiply(call))


class ImportThatIsNotReached(Sound):
    finds = "delayed-import"

    def plot(self) -> None:
        import nobody_brings_this  # type: ignore[import-not-found]

        nobody_brings_this.show()


class ConstructorRaises(Sound):
    finds = "does-not-load"

    def __init__(self) -> None:
        raise KeyError("settings")


class ConstructorEndsTheProcess(Sound):
    finds = "does-not-load"

    def __init__(self) -> None:
        os._exit(3)


class LoadsForSomeHashes(Sound):
    """In the first worker, and not in the second, which has another seed."""

    finds = "does-not-load"

    def __init__(self) -> None:
        if os.environ["PYTHONHASHSEED"] != "0":
            raise ValueError("not this time")


class FindsAnError(Sound):
    finds = "validation-diagnostic"

    def validation_diagnostics(self) -> tuple[ValidationDiagnostic, ...]:
        return (ValidationDiagnostic("error", "trainer_owned_model_control", "temperature is set", "harness.json"),)


class FindsADoubt(Sound):
    finds = "validation-warning"

    def validation_diagnostics(self) -> tuple[ValidationDiagnostic, ...]:
        return (ValidationDiagnostic("warning", "harness_output_cap", "max_tokens is set"),)


class SpeaksToTheTerminal(Sound):
    finds = "validation-diagnostic"

    def validation_diagnostics(self) -> tuple[ValidationDiagnostic, ...]:
        text = "\x1b[2Jall is well\u202e\nvalid: 0 errors"
        return (ValidationDiagnostic("error", text, text, text),)


class CloseRaises(Sound):
    finds = "close-raises"

    async def aclose(self) -> None:
        raise OSError("the connection is gone")
