"""An environment whose rollouts give what cannot cross to the caller, in every part of an attempt or an outcome."""

from __future__ import annotations

import asyncio
import cmath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from benchmax.envs import Dataset, Environment, Example, RolloutAttempt, RolloutOutcome, RolloutRequest


class Double(float):
    """Like a number of numpy: a subclass, with a text of its own."""

    def __repr__(self) -> str:
        return f"Double({float(self)})"


VALUES: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": float("inf"),
    "truth": True,
    "decimal": Decimal("0.5"),
    "fraction": Fraction(1, 2),
    "complex": cmath.pi + 0j,
    "text": "0.5",
    "nothing": None,
    "function": lambda: 0.5,
    "list": [0.5],
    "beyond a float": 10**400,
}
REFUSED = [*VALUES]
FINE = ["double", "large integer", "odd metadata", "huge transcript", "honest"]
LATER = ["map that changes", "huge name", "many components"]


@dataclass(frozen=True)
class WithMetadata(RolloutAttempt):
    messages: Any = None
    metadata: Any = None


class Giving(Environment[str, WithMetadata]):
    async def create_dataset(self, split: Any, base_dir: Path, *, max_examples: int | None = None) -> Dataset[str]:
        return Dataset([Example(name, name) for name in [*REFUSED, *FINE, *LATER, "waiting"]])

    async def run_rollout(self, request: RolloutRequest[str]) -> WithMetadata:
        what = request.example.payload
        # the last of a group is the odd one
        odd = request.rollout_id.endswith("-1")
        rewards: dict[str, Any] = {"x": 1.0}
        messages: list[Any] = [{"role": "user", "content": "hi"}]
        metadata: Any = None
        if what == "waiting":
            while not Path(request.base_url.removeprefix("file://")).exists():
                await asyncio.sleep(0.01)
        elif odd and what in VALUES:
            rewards = {"x": VALUES[what]}
        elif odd and what == "double":
            rewards = {"x": Double(0.25)}
        elif odd and what == "large integer":
            rewards = {"x": 2**65}
        elif odd and what == "odd metadata":
            opened = Path("/dev/null").open()  # noqa: SIM115 - it is what is given
            metadata = {"open": opened, "function": lambda: 1, "integer": 2**65}
            messages.append(metadata)
        elif odd and what == "huge transcript":
            messages.append({"role": "tool", "content": "x" * 300_000_000})
        return WithMetadata(
            rollout_id=request.rollout_id,
            termination_reason="finished",
            rewards=rewards,
            messages=messages,
            metadata=metadata,
        )

    async def compute_group_rewards(self, rollouts: Sequence[WithMetadata]) -> Mapping[str, Mapping[str, float]] | None:
        return None

    async def run_group(self, requests: Any) -> Mapping[str, RolloutOutcome]:
        outcomes = dict(await super().run_group(requests))
        what = next(iter(requests)).example.payload
        last = [*outcomes][-1]
        rewards: dict[str, Any] = {"x": 1.0}
        if what == "map that changes":
            outcomes[last] = RolloutOutcome(rewards, "finished")
            rewards["x"] = float("nan")
        elif what == "huge name":
            outcomes[last] = RolloutOutcome({"n" * 300_000_000: 1.0}, "finished")
        elif what == "many components":
            outcomes[last] = RolloutOutcome({f"{number}": 1.0 for number in range(50_000)}, "finished")
        return outcomes
