"""An immutable sequence of examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

from benchmax.envs.shared_types import Example

__all__ = ["Dataset", "validate_max_examples"]

PayloadT_co = TypeVar("PayloadT_co", covariant=True)


def validate_max_examples(value: int | None) -> int | None:
    """Return `value` unchanged if it is `None` or a positive integer.

    Raises:
        ValueError: it is anything else.
    """
    given: object = value
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given <= 0):
        raise ValueError(f"max_examples must be None or a positive integer, got {value!r}.")
    return value


class Dataset(Generic[PayloadT_co]):
    """A snapshot of `examples` with length, iteration and tuple-like indexing. Payloads are not copied.

    Args:
        examples: The examples in order; may be empty, and ids may repeat.
    """

    def __init__(self, examples: Sequence[Example[PayloadT_co]]) -> None:
        self._examples = tuple(examples)

    def __len__(self) -> int:
        return len(self._examples)

    def __iter__(self) -> Iterator[Example[PayloadT_co]]:
        return iter(self._examples)

    @overload
    def __getitem__(self, index: int) -> Example[PayloadT_co]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Example[PayloadT_co], ...]: ...
    def __getitem__(self, index: int | slice) -> Example[PayloadT_co] | tuple[Example[PayloadT_co], ...]:
        return self._examples[index]
