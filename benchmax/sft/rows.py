"""One row: an object with messages, perhaps tools and metadata. Everything that is wrong with it, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from benchmax.sft.messages import has_tool_calls, is_trainable, message_problems, unknown_keys
from benchmax.sft.strict_json import Problem, canonical_json, kind_of, tree_problems

__all__ = [
    "MAX_MESSAGES",
    "MAX_METADATA_BYTES",
    "MAX_ROW_BYTES",
    "MAX_TOOLS",
    "RESERVED_METADATA_PREFIX",
    "check_row",
]

MAX_MESSAGES: Final = 1024
"""Messages of one row."""

MAX_TOOLS: Final = 128
"""Tools of one row."""

MAX_ROW_BYTES: Final = 1_048_576
"""One row in canonical form, without its line end."""

MAX_METADATA_BYTES: Final = 65_536
"""A row's metadata in canonical form."""

RESERVED_METADATA_PREFIX: Final = "_castform_"
"""Top-level metadata keys with this beginning belong to the platform."""


def check_row(row: object) -> tuple[bytes, list[Problem]]:
    """Return a row's canonical form, which is empty where the list of what is wrong with it is not."""
    problems = tree_problems(row, "$")
    if type(row) is not dict:
        return b"", [*problems, ("$", f"row must be a JSON object, got {kind_of(row)}")]
    problems += _schema_problems(row)
    if problems:
        return b"", problems
    canonical = canonical_json(row)
    if len(canonical) > MAX_ROW_BYTES:
        return b"", [("$", f"row canonical size is {len(canonical)} bytes; the maximum is {MAX_ROW_BYTES}")]
    return canonical, []


def _schema_problems(row: dict[Any, Any]) -> Iterator[Problem]:
    if unknown := unknown_keys(row, ("messages", "tools", "metadata")):
        yield "$", f"unknown top-level key(s): {unknown}"
    tools, messages = row.get("tools"), row.get("messages")
    tools_usable = type(tools) is list and len(tools) > 0
    functions: set[str] = set()
    if "tools" in row:
        yield from _tools_problems(tools, functions)
    if "messages" in row:
        yield from _messages_problems(messages, functions if tools_usable else None)
    else:
        yield "$", "messages is required"
    if type(messages) is list and any(map(has_tool_calls, messages)) and not tools_usable:
        yield "$.tools", "tools must be a non-empty list when any message makes a tool call"
    if "metadata" in row:
        yield from _metadata_problems(row["metadata"])
    if type(messages) is list and messages and not any(map(is_trainable, messages)):
        yield "$.messages", "messages need at least one assistant message with weight 1 and something to learn from"


def _messages_problems(messages: object, functions: set[str] | None) -> Iterator[Problem]:
    at = "$.messages"
    if type(messages) is not list:
        yield at, f"messages must be a list, got {kind_of(messages)}"
        return
    if not messages:
        yield at, "messages must not be empty"
    if len(messages) > MAX_MESSAGES:
        yield at, f"messages has {len(messages)} entries; the maximum is {MAX_MESSAGES}"
    yield from message_problems(messages, at, functions)


def _tools_problems(tools: object, functions: set[str]) -> Iterator[Problem]:
    """Check the tools, and collect the names that they define."""
    at = "$.tools"
    if type(tools) is not list:
        yield at, f"tools must be a list, got {kind_of(tools)}"
        return
    if len(tools) > MAX_TOOLS:
        yield at, f"tools has {len(tools)} entries; the maximum is {MAX_TOOLS}"
    for index, tool in enumerate(tools):
        yield from _tool_problems(tool, f"{at}[{index}]", functions)


def _tool_problems(tool: object, here: str, functions: set[str]) -> Iterator[Problem]:
    if type(tool) is not dict:
        yield here, f"tool must be a JSON object, got {kind_of(tool)}"
        return
    if unknown := unknown_keys(tool, ("type", "function")):
        yield here, f"unknown key(s): {unknown}"
    if not _is_literal(tool.get("type"), "function"):
        yield f"{here}.type", 'type must be the literal "function"'
    if "function" not in tool:
        yield here, "tool requires a function object"
    elif type(tool["function"]) is not dict:
        yield f"{here}.function", f"function must be a JSON object, got {kind_of(tool['function'])}"
    else:
        yield from _defined_function_problems(tool["function"], f"{here}.function", functions)


def _defined_function_problems(function: dict[Any, Any], here: str, functions: set[str]) -> Iterator[Problem]:
    if unknown := unknown_keys(function, ("name", "parameters", "description")):
        yield here, f"unknown key(s): {unknown}"
    name = function.get("name")
    if type(name) is not str or not name:
        yield f"{here}.name", "name must be a non-empty string"
    elif name in functions:
        yield f"{here}.name", f"duplicate tool definition {name!r}"
    else:
        functions.add(name)
    parameters = function.get("parameters")
    if "parameters" not in function:
        yield here, 'parameters is required; a function that takes none has {"type": "object", "properties": {}}'
    elif type(parameters) is not dict:
        yield f"{here}.parameters", f"parameters must be a JSON object, got {kind_of(parameters)}"
    elif "type" in parameters and not _is_literal(parameters["type"], "object"):
        yield f"{here}.parameters.type", 'type of parameters must be "object" when present'
    if "description" in function and type(function["description"]) is not str:
        yield f"{here}.description", f"description must be a string, got {kind_of(function['description'])}"


def _metadata_problems(metadata: object) -> Iterator[Problem]:
    at = "$.metadata"
    if type(metadata) is not dict:
        yield at, f"metadata must be a JSON object, got {kind_of(metadata)}"
        return
    for key in metadata:
        if type(key) is str and key.startswith(RESERVED_METADATA_PREFIX):
            yield at, f"metadata key {key!r} is reserved, as are all that begin with {RESERVED_METADATA_PREFIX!r}"
        elif type(key) is str and key == "tools":
            yield at, 'metadata key "tools" is reserved; tools stand at the top of the row'
    if tree_problems(metadata, at, depth=2):
        # already reported, and without a canonical form there is no size
        return
    size = len(canonical_json(metadata))
    if size > MAX_METADATA_BYTES:
        yield at, f"metadata canonical size is {size} bytes; the maximum is {MAX_METADATA_BYTES}"


def _is_literal(value: object, literal: str) -> bool:
    return type(value) is str and value == literal
