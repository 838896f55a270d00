"""What stands for an example of a bundle in the caller's process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from benchmax.envs.shared_types import RolloutRequest


class DatasetToken:
    """One dataset of an isolated environment. Its examples share it, so that it goes when the last of them does.

    Args:
        owner: The environment.
        number: The dataset's number there.
        on_gone: Called with the number once no example is left, in whatever thread that happens.
    """

    __slots__ = ("__weakref__", "number", "owner")

    def __init__(self, owner: object, number: int, on_gone: Callable[[int], None]) -> None:
        self.owner = owner
        self.number = number
        # at the end of the program everything goes, and there is nobody to be told
        weakref.finalize(self, on_gone, number).atexit = False


class ExampleHandle:
    """Payload of an isolated dataset's examples: where the real one is. The real payload stays in the worker."""

    __slots__ = ("_token", "position")

    def __init__(self, token: DatasetToken, position: int) -> None:
        self._token = token
        self.position = position

    @property
    def dataset(self) -> int:
        """The number of its dataset."""
        return self._token.number

    def belongs_to(self, owner: object) -> bool:
        """Whether the example came from this environment."""
        return self._token.owner is owner

    def __repr__(self) -> str:
        return f"ExampleHandle(dataset={self.dataset}, position={self.position})"


def check_examples(requests: Iterable[RolloutRequest[Any]], owner: object) -> None:
    """Check that the examples of requests are of datasets of this environment.

    Raises:
        ValueError: one is not.
    """
    checked: object = None
    for request in requests:
        # siblings share one example, mostly one object
        if request.example is checked:
            continue
        checked = request.example
        payload = getattr(checked, "payload", None)
        if type(payload) is not ExampleHandle or not payload.belongs_to(owner):
            raise ValueError(
                f"the example of rollout {request.rollout_id!r} is not from this environment's dataset; "
                "use examples of a dataset that its own create_dataset returned"
            )
