"""Values that fit a JSON schema, made from a question: numbers and quoted words are taken from it in order.

Made for tool arguments and `response_format`; a schema is only followed as far as a plausible value needs, and what is
not understood gives a string.
"""

from __future__ import annotations

import re
from typing import Final

from runner.models.arithmetic import find_numbers
from runner.models.script import JsonValue

MAX_DEPTH: Final = 8
"""Nesting after which values become `null`; recursive schemas have no end of their own."""

_QUOTED: Final = re.compile(r"\"([^\"]{1,200})\"|'([^']{1,200})'|`([^`]{1,200})`")
_EXPRESSION_NAMES: Final = frozenset({"expression", "expr", "formula", "equation", "calculation"})

Schema = dict[str, JsonValue]


class SchemaValues:
    """Makes values for one question; what it took from the question is not used twice.

    Args:
        question: The text to take numbers and words from.
        expression: What goes into a parameter that asks for an expression; empty if the question has none.
    """

    def __init__(self, question: str, *, expression: str = "") -> None:
        self._question = question
        self._expression = expression
        self._numbers = find_numbers(question)
        self._quoted = [next(g for g in match.groups() if g) for match in _QUOTED.finditer(question)]

    def object_for(self, schema: Schema) -> dict[str, JsonValue]:
        """Return an object with the schema's required properties, or with all if it requires none."""
        return self._object(schema, schema, 0)

    def _object(self, schema: Schema, root: Schema, depth: int) -> dict[str, JsonValue]:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return {}
        required = schema.get("required")
        names = [n for n in properties if n in required] if isinstance(required, list) else []
        return {name: self._value(name, properties[name], root, depth + 1) for name in names or properties}

    def _value(self, name: str, schema: JsonValue, root: Schema, depth: int) -> JsonValue:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return None
        schema = _resolved(schema, root)
        if "const" in schema:
            return schema["const"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            named = (o for o in options if isinstance(o, str) and o.lower() in self._question.lower())
            return next(named, options[0])
        match _kind(schema):
            case "integer":
                return int(self._number(schema))
            case "number":
                return self._number(schema)
            case "boolean":
                return True
            case "null":
                return None
            case "array":
                return self._array(name, schema, root, depth)
            case "object":
                return self._object(schema, root, depth)
            case _:
                return self._text(name, schema)

    def _array(self, name: str, schema: Schema, root: Schema, depth: int) -> list[JsonValue]:
        items = schema.get("items", {})
        if isinstance(items, dict) and _kind(items) in {"number", "integer"} and self._numbers:
            taken, self._numbers = self._numbers, []
            return [int(n) if _kind(items) == "integer" else n for n in taken]
        return [self._value(name, items, root, depth + 1)]

    def _number(self, schema: Schema) -> int | float:
        if self._numbers:
            return self._numbers.pop(0)
        for key in ("default", "minimum"):
            fallback = schema.get(key)
            if isinstance(fallback, int | float):
                return fallback
        return 1

    def _text(self, name: str, schema: Schema) -> str:
        if name.lower() in _EXPRESSION_NAMES and self._expression:
            return self._expression
        if self._quoted:
            return self._quoted.pop(0)
        default = schema.get("default")
        return default if isinstance(default, str) else self._question.strip()[:200]


def takes_expression(schema: Schema | None) -> bool:
    """Say whether the schema has a property that asks for a whole expression."""
    properties = (schema or {}).get("properties")
    return isinstance(properties, dict) and any(name.lower() in _EXPRESSION_NAMES for name in properties)


def _kind(schema: Schema) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((k for k in kind if k != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "string"


def _resolved(schema: Schema, root: Schema) -> Schema:
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref")
        options = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: JsonValue = root
            for part in reference[2:].split("/"):
                found = found.get(part) if isinstance(found, dict) else None
            schema = found if isinstance(found, dict) else {}
        elif isinstance(options, list) and options and isinstance(options[0], dict):
            schema = options[0]
        else:
            break
    return schema
