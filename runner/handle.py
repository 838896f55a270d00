"""What stands for an example of a bundle in the caller's process."""

from __future__ import annotations


class ExampleHandle:
    """Payload of an isolated dataset's examples: where the real one is. The real payload stays in the worker."""

    __slots__ = ("_owner", "dataset", "position")

    def __init__(self, owner: object, dataset: int, position: int) -> None:
        self._owner = owner
        self.dataset = dataset
        self.position = position

    def belongs_to(self, owner: object) -> bool:
        """Whether the example came from this environment."""
        return self._owner is owner

    def __repr__(self) -> str:
        return f"ExampleHandle(dataset={self.dataset}, position={self.position})"
