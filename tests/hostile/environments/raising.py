"""An environment that raises exceptions which are hard to look at, in a place of its choosing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutFailure, RolloutRequest


class TwoArguments(Exception):
    """Cannot be made again from its text, as many cannot that hold a response."""

    def __init__(self, message: str, *, response: object) -> None:
        super().__init__(message)
        self.response = response

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot be pickled")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("asked for its text")

    __repr__ = __str__


class Deadly(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class OddNames(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__module__", "__name__"):
            raise RuntimeError("asked for its name")
        return super().__getattribute__(name)


class Cyclic(Exception):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.__cause__ = self
        self.__context__ = Exception("context")
        self.__context__.__context__ = self


def grouped(depth: int) -> BaseException:
    error: Exception = ValueError("innermost")
    for number in range(depth):
        error = ExceptionGroup(f"level {number}", [error, KeyError(number)])
    return error


def chained(length: int) -> BaseException:
    error: BaseException = ValueError("first")
    for number in range(length):
        after = ValueError(f"after {number}")
        after.__cause__ = error
        error = after
    return error


def raised(kind: str) -> BaseException:
    match kind:
        case "huge":
            return ValueError("x" * 50_000_000)
        case "two arguments":
            return TwoArguments("the reason", response=object())
        case "no text":
            return Unspeakable()
        case "deadly text":
            return Deadly()
        case "no name":
            # made here, since it could not be bundled: the pickler wants its name, too
            nameless: Any = OddNames("Nameless", (Exception,), {})
            return cast("BaseException", nameless("the reason"))
        case "cyclic":
            return Cyclic("the reason")
        case "deep group":
            return grouped(2000)
        case "long chain":
            return chained(5000)
        case "many notes":
            error = ValueError("the reason")
            for _ in range(100):
                error.add_note("n" * 100_000)
            return error
        case "odd text":
            return ValueError("\ud800 \x1b[2J\x9b31m \u202e \x00 the reason")
        case "no exception of the program":
            return GeneratorExit("the reason")
        case _:
            raise AssertionError(kind)


KINDS = [
    "huge", "two arguments", "no text", "deadly text", "no name", "cyclic", "deep group", "long chain", "many notes",
    "odd text", "no exception of the program",
]  # fmt: skip


class Raising(Environment[str, RolloutAttempt]):
    """Raises one kind where it is told to; an example for each kind raises it in the rollout, or later."""

    def __init__(self, place: str, kind: str = "") -> None:
        self.place = place
        self.kind = kind
        if place == "constructor":
            raise raised(kind)

    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        if self.place == "dataset":
            self.kind = KINDS[KINDS.index(self.kind) + 1] if self.kind else KINDS[0]
            raise raised(self.kind)
        return Dataset([Example(kind, kind) for kind in [*KINDS, "nothing"]])

    async def run_rollout(self, request: RolloutRequest[str]) -> RolloutAttempt:
        kind = request.example.payload
        if kind != "nothing" and self.place == "rollout":
            raise raised(kind)
        if kind != "nothing" and self.place == "failure":
            text = str.__str__(raised(kind).args[0]) if raised(kind).args else "no text"
            raise RolloutFailure("tool_error", text) from raised(kind)
        self.kind = kind
        return RolloutAttempt(rollout_id=request.rollout_id, termination_reason="finished", rewards={"x": 1.0})

    async def compute_group_rewards(
        self, rollouts: Sequence[RolloutAttempt]
    ) -> Mapping[str, Mapping[str, float]] | None:
        if self.kind != "nothing" and self.place == "scoring":
            raise raised(self.kind)
        return None

    async def aclose(self) -> None:
        if self.place == "close":
            raise raised(self.kind)
