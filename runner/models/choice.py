"""Which model a name means: `mock`, `mock:SCRIPT` and `local` without a server of one's own, any name with one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.errors import UsageError
from runner.models.script import load_script

LOCAL_MODEL = "smollm2-135m-instruct"
"""The name under which the local model is asked for and announces itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """What to ask, and where.

    Args:
        kind: `mock` and `local` are servers to be started; `endpoint` is one that runs already.
        model: The model's name in requests.
        base_url: Where an `endpoint` is; `None` for the others, whose address is announced when they start.
        script: The mock's script, checked; `None` for its built-in answers.
    """

    kind: Literal["mock", "local", "endpoint"]
    model: str
    base_url: str | None = None
    script: Path | None = None


def parse_model(name: str, *, base_url: str | None) -> ModelChoice:
    """Return the model that a name means.

    Args:
        name: `mock`, `mock:SCRIPT` or `local`; with a `base_url` any name, which goes to that server as it stands.
        base_url: An OpenAI-compatible server's URL, or `None`.

    Raises:
        UsageError: a blank name; without a `base_url`, an unknown name, or a script that cannot be used.
    """
    if not name.strip():
        raise UsageError("The model's name is empty.", hint="Use `mock`, `mock:SCRIPT` or `local`.")
    if base_url is not None:
        return ModelChoice(kind="endpoint", model=name, base_url=base_url)
    if name == "mock":
        return ModelChoice(kind="mock", model="mock")
    if name == "local":
        return ModelChoice(kind="local", model=LOCAL_MODEL)
    if name.startswith("mock:"):
        script = Path(name.removeprefix("mock:")).expanduser()
        load_script(script)
        return ModelChoice(kind="mock", model="mock", script=script.absolute())
    close = difflib.get_close_matches(name.partition(":")[0].lower(), ["mock", "local"], n=1)
    guess = f"Did you mean `{close[0]}`? " if close else ""
    raise UsageError(
        f"There is no model `{name}`; without a base URL there are `mock`, `mock:SCRIPT` and `local`.",
        hint=f"{guess}Give --base-url URL to ask a server for any other model.",
    )
