"""What the mock answers without a script: enough sense to try an environment out.

- Tools on offer: one that fits is called, step by step for arithmetic, with arguments made from its JSON schema; their
  last result becomes the answer. A call that failed is made once more.
- Arithmetic and linear equations: worked out exactly. One of every four samples of a question is answered wrong (which
  one depends on the question), so that the siblings of a group differ.
- A wanted JSON answer: an object that fits the schema.
- A choice (options `A)` to `H)`, true or false, yes or no) or a count (`how many`): a guess, one per sample.
- Everything else: one short sentence about the question.

The answer depends on the request and its sample number alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from typing import Final

from runner.models.arithmetic import Operation, Problem, find_problem, number, spelled
from runner.models.chat import ChatRequest, FunctionSpec
from runner.models.schema_values import SchemaValues, takes_expression
from runner.models.script import JsonValue, Reply, ScriptedCall

QUALITIES: Final = 4
"""Kinds of answer, one after the other over the samples: wrong, bare, in a sentence, after `Answer:`."""

MAX_FAILURES: Final = 2
"""Failed tool calls after which no more are made."""

_TOOL_NAMES: Final[dict[Operation, tuple[str, ...]]] = {
    "add": ("add", "sum", "plus"),
    "subtract": ("sub", "minus", "diff"),
    "multiply": ("mul", "product", "times"),
    "divide": ("div", "quotient", "ratio"),
    "modulo": ("mod", "remainder"),
    "power": ("pow", "exponent"),
}
_FAILED: Final = re.compile(r"^\s*(unknown tool|invalid|tool arguments must|error)|\"error\"\s*:", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'-]{3,}")
_OPTION: Final = re.compile(r"(?:^|\n|\s)\(?([A-H])[).:]\s")
_EITHER: Final = re.compile(r"\b(true|yes|right) or (false|no|wrong)\b", re.IGNORECASE)
_COMMON: Final = frozenset(
    _WORD.findall(
        "about answer could does explain following from give have into just many much only please question reply "
        "should tell that their them then there these they this what when where which will with word words would write"
    )
)


def default_reply(request: ChatRequest, sample: int) -> Reply:
    """Return the built-in answer to one sample of a request."""
    seed = int.from_bytes(hashlib.sha256(request.user.encode("utf-8", "replace")).digest()[:4])
    quality = (seed + sample) % QUALITIES
    problem = find_problem(request.user)
    results = [m.text for m in request.since_user if m.role == "tool"]
    failures = sum(_FAILED.search(result) is not None for result in results)
    if request.offered and failures < MAX_FAILURES:
        call = _next_call(request, problem, len(results) - failures)
        if call is not None:
            return Reply(tool_calls=[call])
    if results:
        return Reply(text=_text_from_result(request, results[-1], quality))
    if request.response_format is not None and request.response_format.type != "text":
        return Reply(text=_json_text(request, problem))
    if problem is not None:
        return Reply(text=_phrased(request, _maybe_wrong(problem.value, quality), quality))
    guess = _guess(request.user, seed + sample)
    return Reply(text=_sentence(request.user, seed + sample) if guess is None else _phrased(request, guess, quality))


def _next_call(request: ChatRequest, problem: Problem | None, done: int) -> ScriptedCall | None:
    tools = request.offered
    if problem is not None:
        whole = next((tool for tool in tools if takes_expression(tool.parameters)), None)
        if whole is not None:
            return _call(whole, request.user, expression=problem.text) if done == 0 else None
        stepwise = [_tool_for(step.operation, tools) for step in problem.steps]
        if stepwise and all(stepwise):
            if done >= len(stepwise):
                return None
            step, tool = problem.steps[done], stepwise[done]
            operands = f"{spelled(step.left)} {spelled(step.right)}"
            return _call(tool, operands) if tool is not None else None
    if done > 0:
        return None
    return _call(_most_related(request.user, tools), request.user)


def _call(tool: FunctionSpec, question: str, *, expression: str = "") -> ScriptedCall:
    values = SchemaValues(question, expression=expression)
    return ScriptedCall(name=tool.name, arguments=values.object_for(tool.parameters or {}))


def _tool_for(operation: Operation, tools: list[FunctionSpec]) -> FunctionSpec | None:
    names = _TOOL_NAMES[operation]
    return next((t for t in tools if any(name in t.name.lower() for name in names)), None)


def _most_related(question: str, tools: list[FunctionSpec]) -> FunctionSpec:
    asked = {word.lower() for word in _WORD.findall(question)}

    def shared(tool: FunctionSpec) -> int:
        described = f"{tool.name.replace('_', ' ')} {tool.description or ''}"
        return len(asked & {word.lower() for word in _WORD.findall(described)})

    return max(tools, key=shared)  # the first of the best


def _text_from_result(request: ChatRequest, result: str, quality: int) -> str:
    if _FAILED.search(result):
        return f"The tool could not help: {result.strip()[:200]}"
    value = _single_value(result)
    try:
        numeric = Fraction(value)
    except (ValueError, ZeroDivisionError):
        return _phrased(request, value, quality)
    return _phrased(request, _maybe_wrong(numeric, quality), quality)


def _single_value(result: str) -> str:
    try:
        decoded: JsonValue = json.loads(result)
    except (ValueError, RecursionError):
        return result.strip()
    if isinstance(decoded, dict) and len(decoded) == 1:
        decoded = next(iter(decoded.values()))
    return decoded if isinstance(decoded, str) else json.dumps(decoded)


def _maybe_wrong(value: Fraction, quality: int) -> str:
    return spelled(value + 1 if quality == 0 else value)


def _phrased(request: ChatRequest, value: str, quality: int) -> str:
    asked = request.conversation
    if "<answer>" in asked:
        return f"<answer>{value}</answer>"
    if "\\boxed" in asked:
        return f"\\boxed{{{value}}}"
    if "Answer:" in asked or quality == 3:
        return f"Answer: {value}"
    return value if quality == 1 else f"The answer is {value}."


def _json_text(request: ChatRequest, problem: Problem | None) -> str:
    wanted = request.response_format.json_schema if request.response_format else None
    if wanted is None or wanted.schema is None:
        answer: JsonValue = number(problem.value) if problem else request.user[:200]
        return json.dumps({"answer": answer})
    return json.dumps(SchemaValues(request.user).object_for(wanted.schema))


def _guess(question: str, seed: int) -> str | None:
    options = _OPTION.findall(question)
    either = _EITHER.search(question)
    if len(options) > 1:
        return str(options[seed % len(options)])
    if re.search(r"\bhow (many|often)\b", question, re.IGNORECASE):
        return str(1 + seed % QUALITIES)
    return None if either is None else either[1 + seed % 2]


def _sentence(question: str, seed: int) -> str:
    words: list[str] = []
    for word in _WORD.findall(question):
        if word.lower() not in _COMMON and word not in words:
            words.append(word)
    topic = " ".join(words[:3])
    if not topic:
        return "Hello! Ask me a question, and I will give a short answer."
    openings = ("A short answer about", "In short, on", "Briefly, about", "One thought on")
    return f"{openings[seed % len(openings)]} {topic}: it depends on the details that you gave."
