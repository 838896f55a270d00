"""What a session may take: the length of its conversation, calls, and tokens in all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.gateway.exchange import Usage
from runner.gateway.faults import RefusedError
from runner.gateway.usage import summed
from runner.limits import Limits

CAPS: Final = ("max_tokens", "max_completion_tokens")
"""Members of a chat request that bound its answer."""

NOTHING: Final = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a session may take; `None` does not bound it.

    Args:
        context_tokens: Tokens of its conversation: of the longest request together with its answer.
        calls: Calls.
        tokens: Tokens of all its calls together. A call that has begun is not stopped at it.
    """

    context_tokens: int | None = None
    calls: int | None = None
    tokens: int | None = None

    @staticmethod
    def of(limits: Limits) -> Budget:
        """Return what one rollout may take."""
        return Budget(
            context_tokens=limits.context_tokens,
            calls=limits.model_calls_per_rollout,
            tokens=limits.model_tokens_per_rollout,
        )

    @property
    def counts_tokens(self) -> bool:
        """Whether usage has to be known to keep to it."""
        return self.context_tokens is not None or self.tokens is not None


class Account:
    """What a session has taken of its budget.

    Args:
        budget: The most that it may.
    """

    __slots__ = ("_budget", "calls", "context_tokens", "usage")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.calls = 0
        self.context_tokens = 0
        self.usage = NOTHING

    def check(self, document: Mapping[str, Any] | None, *, chat: bool) -> dict[str, int]:
        """Count one call in, if it is within the budget.

        Args:
            document: The request.
            chat: Whether it goes on with the conversation.

        Returns:
            Members of the request to lower, with what to: caps of the answer that are above what is left.

        Raises:
            RefusedError: it is not.
        """
        budget = self._budget
        if budget.calls is not None and self.calls >= budget.calls:
            raise RefusedError(f"this session has made its {budget.calls} model calls.", code="call_budget_exceeded")
        if budget.tokens is not None and self.usage.total_tokens >= budget.tokens:
            raise RefusedError(
                f"this session has used {self.usage.total_tokens} tokens, and may use {budget.tokens}.",
                code="token_budget_exceeded",
            )
        lowered: dict[str, int] = {}
        if chat and budget.context_tokens is not None:
            left = budget.context_tokens - self.context_tokens
            if left <= 0:
                raise RefusedError(
                    f"this conversation has {self.context_tokens} tokens, and its context is {budget.context_tokens}.",
                    code="context_budget_exceeded",
                    param="messages",
                )
            for name in CAPS:
                asked = (document or {}).get(name)
                if isinstance(asked, (int, float)) and not isinstance(asked, bool) and asked > left:
                    lowered[name] = left
        self.calls += 1
        return lowered

    def add(self, usage: Usage, *, chat: bool) -> None:
        """Count what a call took that was answered."""
        self.usage = summed(self.usage, usage)
        if chat:
            self.context_tokens = max(self.context_tokens, usage.total_tokens)
