"""A chat-completion request as an OpenAI-compatible server takes it: decoded, checked, and asked about.

In goes the body of `POST /v1/chat/completions`; out comes a `ChatRequest`, or a `BadRequestError` that carries the
fields of OpenAI's error object. Fields that do not change what a mock answers are accepted and ignored.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from runner.models.script import JsonValue

Role = Literal["system", "developer", "user", "assistant", "tool"]

MAX_CHOICES: Final = 128
"""OpenAI's own limit for `n`."""

BYTES_PER_TOKEN: Final = 4
"""A rough, deterministic count: English text has about four bytes per token with current tokenizers."""

TOKENS_PER_MESSAGE: Final = 4
"""What a chat template adds around each message, roughly."""


class BadRequestError(Exception):
    """Raised when a request is one that an OpenAI server answers with status 400.

    Args:
        message: What is wrong.
        param: Path of the field that is wrong, if it is one field.
        code: OpenAI's code for it, if there is one.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class FunctionSpec(Struct, frozen=True):
    """An offered function."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class ToolSpec(Struct, frozen=True):
    """An offered tool."""

    type: Literal["function"]
    function: FunctionSpec


class ContentPart(Struct, frozen=True):
    """One part of a message's content; only text parts are read."""

    type: str
    text: str | None = None


class CalledFunction(Struct, frozen=True):
    """Name and arguments of a call the model made earlier."""

    name: str
    arguments: str = ""


class CallEntry(Struct, frozen=True):
    """A call the model made earlier."""

    id: str
    function: CalledFunction


class ChatMessage(Struct, frozen=True):
    """One message of the transcript."""

    role: Role
    content: str | list[ContentPart] | None = None
    tool_calls: list[CallEntry] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """The text of the message; parts are joined, and what is no text counts as nothing."""
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class NamedFunction(Struct, frozen=True):
    """The function a `tool_choice` names."""

    name: str


class NamedTool(Struct, frozen=True):
    """A `tool_choice` that names one function."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchemaFormat(Struct, frozen=True):
    """The schema of a `response_format`."""

    schema: dict[str, JsonValue] | None = None


class ResponseFormat(Struct, frozen=True):
    """The form in which the answer is wanted."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(Struct, frozen=True):
    """Options of a streamed answer."""

    include_usage: bool | None = None


Temperature = Annotated[float, Meta(ge=0, le=2)]
TokenLimit = Annotated[int, Meta(ge=1)]


class ChatRequest(Struct, frozen=True):
    """The body of one chat-completion request, checked."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: Annotated[list[ToolSpec], Meta(min_length=1)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: Temperature | None = None

    @property
    def user(self) -> str:
        """The last user message's text, or nothing."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def system(self) -> str:
        """The text of all system and developer messages."""
        return "\n".join(m.text for m in self.messages if m.role in {"system", "developer"})

    @property
    def since_user(self) -> list[ChatMessage]:
        """The messages after the last user message."""
        start = max((i for i, m in enumerate(self.messages) if m.role == "user"), default=-1)
        return self.messages[start + 1 :]

    @property
    def turn(self) -> int:
        """Which answer of the model to the last user message this request asks for, from 1."""
        return 1 + sum(m.role == "assistant" for m in self.since_user)

    @property
    def conversation(self) -> str:
        """All messages as lines `role: text`, calls as `assistant: name(arguments)`."""
        lines: list[str] = []
        for message in self.messages:
            if message.text or not message.tool_calls:
                lines.append(f"{message.role}: {message.text}")
            for call in message.tool_calls or ():
                lines.append(f"{message.role}: {call.function.name}({call.function.arguments})")
        return "\n".join(lines)

    @property
    def offered(self) -> list[FunctionSpec]:
        """The functions the model may call."""
        if self.tool_choice == "none":
            return []
        functions = [tool.function for tool in self.tools or ()]
        if isinstance(self.tool_choice, NamedTool):
            return [f for f in functions if f.name == self.tool_choice.function.name]
        return functions

    @property
    def token_limit(self) -> int | None:
        """The smaller of the two limits on the answer's tokens."""
        return min((v for v in (self.max_tokens, self.max_completion_tokens) if v is not None), default=None)

    def prompt_tokens(self) -> int:
        """Return the rough number of tokens of messages and tools."""
        tools = len(msgspec.json.encode(self.tools)) if self.tools else 0
        texts = sum(len(m.text.encode("utf-8", "replace")) for m in self.messages)
        calls = sum(len(c.function.arguments) for m in self.messages for c in m.tool_calls or ())
        return TOKENS_PER_MESSAGE * len(self.messages) + token_count_of_bytes(tools + texts + calls)


def token_count_of_bytes(count: int) -> int:
    """Return the rough number of tokens in this many bytes."""
    return -(-count // BYTES_PER_TOKEN)


def decode_json_body(body: bytes) -> dict[str, JsonValue]:
    """Decode a request body that must be a JSON object.

    Raises:
        BadRequestError: it is not.
    """
    try:
        tree: JsonValue = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise BadRequestError(f"The body of the request is not valid JSON: {exc}") from exc
    if not isinstance(tree, dict):
        raise BadRequestError("The body of the request must be a JSON object.")
    return tree


def decode_chat_request(tree: dict[str, JsonValue]) -> ChatRequest:
    """Check a decoded body.

    Raises:
        BadRequestError: a field is missing or wrong, or tool messages do not answer tool calls one to one.
    """
    try:
        request = msgspec.convert(tree, ChatRequest)
    except (msgspec.ValidationError, RecursionError) as exc:
        raise _bad_field(str(exc)) from exc
    offered = {tool.function.name for tool in request.tools or ()}
    if isinstance(request.tool_choice, NamedTool) and request.tool_choice.function.name not in offered:
        raise BadRequestError("The function is not among `tools`.", param="tool_choice")
    if request.tool_choice is not None and request.tools is None and request.tool_choice != "none":
        raise BadRequestError("`tool_choice` is only allowed when `tools` are given.", param="tool_choice")
    if request.stream_options is not None and not request.stream:
        raise BadRequestError("`stream_options` is only allowed when `stream` is true.", param="stream_options")
    _check_transcript(request.messages)
    return request


def _check_transcript(messages: list[ChatMessage]) -> None:
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.role == "tool":
            if message.tool_call_id is None:
                raise BadRequestError("A tool message needs a `tool_call_id`.", param=f"{place}.tool_call_id")
            if message.tool_call_id not in open_calls:
                raise BadRequestError(
                    f"No unanswered tool call `{message.tool_call_id}` precedes this tool message.", param=place
                )
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            raise BadRequestError(f"Tool calls without a tool message: {', '.join(sorted(open_calls))}.", param=place)
        if message.content is None and not (message.role == "assistant" and message.tool_calls):
            raise BadRequestError("`content` must not be null.", param=f"{place}.content")
        if message.tool_calls is not None:
            if message.role != "assistant":
                raise BadRequestError("Only the assistant calls tools.", param=f"{place}.tool_calls")
            open_calls = {call.id for call in message.tool_calls}
    if open_calls:
        raise BadRequestError(
            f"Tool calls without a tool message: {', '.join(sorted(open_calls))}.",
            param=f"messages[{len(messages) - 1}]",
        )


def _bad_field(text: str) -> BadRequestError:
    what, _, place = text.partition(" - at `$")
    param = place.strip("`.")
    missing = re.search(r"missing required field `(\w+)`", what)
    if missing:
        param = f"{param}.{missing[1]}".lstrip(".")
        return BadRequestError(
            f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
        )
    code = "invalid_type" if what.startswith("Expected `") and ", got `" in what else "invalid_value"
    return BadRequestError(f"Invalid value for '{param}': {what}.", param=param or None, code=code)
