"""Types of OpenAI's chat-completion wire format: precise for type checkers, plain dictionaries at run time.

At run time nothing of openai is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["Message", "Messages", "Tool"]

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

    Message: TypeAlias = ChatCompletionMessageParam
    Tool: TypeAlias = ChatCompletionToolParam
    Messages: TypeAlias = list[Message]
else:
    Message = dict[str, Any]
    Tool = dict[str, Any]
    Messages = list[Message]
