r"""The script of the mock model: which answer is given to which request.

A script is one JSON or TOML file of at most 1 MiB (the suffix, `.json` or `.toml`, decides). Without rules, or where
no rule matches, the built-in answers of `runner.models.default_answer` apply.

    format = 1                       # optional; the only version there is
    otherwise = "default"            # or "error": a request that no rule matches is answered with HTTP 400
    latency_s = 0.0                  # for every answer, unless its rule says otherwise

    [[rules]]                        # tried in order, the first that matches answers
    name = "multiplication"          # optional, for the log
    when = { user = '(?P<a>\d+) \* (?P<b>\d+)', tools = "multiply", turn = 1 }
    reply = { tool_calls = [{ name = "multiply", arguments = { left = "{a:number}", right = "{b:number}" } }] }

    [[rules]]
    when = { last = '"value": ?(?P<value>\d+)' }
    reply = { text = "The answer is {value}." }

    [[rules]]
    when = { user = "weather", sample = 1 }
    error = { status = 429, code = "rate_limit_exceeded", message = "Slow down." }
    latency_s = 0.5

**Conditions** (`when`; all that are given must hold, none given: always). The regular expressions are searched for,
case matters, and `.` matches line ends too.

| field | holds if |
|---|---|
| `user` | it is found in the last user message |
| `last` | it is found in the last message, whoever wrote it (a tool's result, mostly) |
| `system` | it is found in the system and developer messages |
| `conversation` | it is found in all messages, one per line as `role: text`; calls as `assistant: name(arguments)` |
| `model` | it is found in the model's name |
| `tools` | `true`: tools are offered; `false`: none are; a string: it is found in the name of an offered tool |
| `turn` | the model has answered `turn - 1` times since the last user message; a number or a list of numbers |
| `sample` | this is one of these samples of the request, from 0; a number or a list of numbers |

The *sample* tells siblings apart, whose requests are equal: it is the number in the request's `X-Benchmax-Sample`
header or, without one, in its bearer token if that is `benchmax-sample-<number>`, else how often the same request has
come before.

**Answers**; every rule has exactly one of these.

- `reply`: a table, or a list of tables of which sample *k* gets number *k* modulo the length, or `"default"` for the
  built-in answer. Its fields: `text`; `tool_calls`, each with `name` and either `arguments` (a table) or
  `raw_arguments` (a string sent as it stands, valid JSON or not) and perhaps `id`; `finish_reason` (default
  `"tool_calls"` if there are calls, else `"stop"`; `null` in JSON is sent as null); `usage` (`prompt_tokens`,
  `completion_tokens`; default: about a token for every four bytes).
- `error`: an HTTP error with `status` (400 to 599), `message`, `code`, `type` and further `headers`.
- `raw`: a `body` sent as it stands, with `status` (default 200) and `content_type` (default `application/json`).
- `drop`: the connection is closed, `"before"` a byte of the answer or `"midway"` through it.

**Placeholders** in `text`, `arguments`, `raw_arguments`, `message` and `body`: `{name}` and `{1}` are groups of the
rule's expressions (numbers count in the first expression the rule has, `{0}` is its whole match); `{user}`, `{last}`,
`{model}`, `{turn}`, `{sample}` are the facts of the table above. An argument that is nothing but `{name:number}` is
sent as a number. Other braces stay as they are, and `{{name}}` is the literal text `{name}`.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from runner.errors import UsageError

MAX_SCRIPT_BYTES: Final = 1024 * 1024
"""One script file; a mock that needs more is a program of its own."""

MAX_LATENCY_S: Final = 600.0
"""The OpenAI client's own default time-out; nobody waits longer."""

FACTS: Final = frozenset({"user", "last", "model", "turn", "sample"})
PLACEHOLDER: Final = re.compile(r"\{\{([^{}]*)\}\}|\{(\d{1,2}|[A-Za-z_]\w*)(:number)?\}")

if TYPE_CHECKING:
    JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
else:
    JsonValue = Any  # msgspec cannot resolve an alias that names itself

Seconds = Annotated[float, Meta(ge=0, le=MAX_LATENCY_S)]
Count = Annotated[int, Meta(ge=0, le=2**31)]
TurnNumber = Annotated[int, Meta(ge=1, le=2**31)]


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The conditions of one rule; see the module's table."""

    user: str | None = None
    last: str | None = None
    system: str | None = None
    conversation: str | None = None
    model: str | None = None
    tools: bool | str | None = None
    turn: TurnNumber | list[TurnNumber] | None = None
    sample: Count | list[Count] | None = None

    def __post_init__(self) -> None:
        for field, pattern in [*self.text_patterns(), ("model", self.model), ("tools", self.tools)]:
            if isinstance(pattern, str):
                try:
                    re.compile(pattern)
                except re.error as exc:
                    raise ValueError(f"`{field}` is not a regular expression: {exc}") from exc

    def text_patterns(self) -> list[tuple[str, str]]:
        """Return the expressions whose groups can be used in answers, as (field, pattern), in order."""
        pairs = [
            ("user", self.user),
            ("last", self.last),
            ("system", self.system),
            ("conversation", self.conversation),
        ]
        return [(field, pattern) for field, pattern in pairs if pattern is not None]


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool call of a reply."""

    name: str
    arguments: dict[str, JsonValue] | None = None
    raw_arguments: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is not None and self.raw_arguments is not None:
            raise ValueError("`arguments` and `raw_arguments` exclude each other")


class Usage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token counts of one answer."""

    prompt_tokens: Count
    completion_tokens: Count


class Reply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One assistant message."""

    text: str | None = None
    tool_calls: list[ScriptedCall] = msgspec.field(default_factory=list)
    finish_reason: str | UnsetType | None = UNSET
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if self.text is None and not self.tool_calls:
            raise ValueError("a reply needs `text`, `tool_calls` or both")


class HttpError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer with an error status."""

    status: Annotated[int, Meta(ge=400, le=599)]
    message: str = "This answer is scripted."
    code: str | None = None
    type: str | None = None
    headers: dict[str, str] = {}


class RawBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body sent as it stands."""

    body: str
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    content_type: str = "application/json"


Drop = Literal["before", "midway"]


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: conditions and the one answer given when they hold."""

    name: str = ""
    when: When = When()
    reply: Reply | list[Reply] | Literal["default"] | None = None
    error: HttpError | None = None
    raw: RawBody | None = None
    drop: Drop | None = None
    latency_s: Seconds | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("reply", "error", "raw", "drop") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) or "none"
            raise ValueError(f"a rule needs exactly one of `reply`, `error`, `raw` and `drop`, found {found}")
        if self.reply == []:
            raise ValueError("`reply` is an empty list")
        known = self._known_placeholders()
        for text in self._templates():
            for match in PLACEHOLDER.finditer(text):
                name = match[2]
                if name is not None and name not in known:
                    raise ValueError(
                        f"placeholder `{{{name}}}` is neither a group of the rule's expressions nor one of "
                        f"{', '.join(sorted(FACTS))}; write `{{{{{name}}}}}` for the literal text"
                    )

    def _known_placeholders(self) -> set[str]:
        known = set(FACTS)
        for index, (_, pattern) in enumerate(self.when.text_patterns()):
            compiled = re.compile(pattern)
            known |= set(compiled.groupindex)
            if index == 0:
                known |= {str(number) for number in range(compiled.groups + 1)}
        return known

    def _templates(self) -> list[str]:
        texts: list[str] = []
        replies = self.reply if isinstance(self.reply, list) else [self.reply]
        for reply in replies:
            if isinstance(reply, Reply):
                texts.append(reply.text or "")
                for call in reply.tool_calls:
                    texts.append(call.raw_arguments or "")
                    texts.extend(_strings(call.arguments))
        if self.error is not None:
            texts.append(self.error.message)
        if self.raw is not None:
            texts.append(self.raw.body)
        return texts


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole script; without rules it is the default one."""

    format: Literal[1] = 1
    rules: list[Rule] = msgspec.field(default_factory=list)
    otherwise: Literal["default", "error"] = "default"
    latency_s: Seconds = 0.0


def load_script(path: Path) -> Script:
    """Read and check a script file.

    Raises:
        UsageError: the file is missing, too large, not JSON or TOML, or breaks the format; the text names the file
            and the place in it.
    """
    if path.is_dir():
        raise UsageError(f"Mock script {path} cannot be read: it is a folder.", hint="Check the path after `mock:`.")
    if path.suffix not in {".json", ".toml"}:
        raise UsageError(f"Mock script {path} has no known suffix.", hint="Name it .json or .toml.")
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise UsageError(
            f"Mock script {path} cannot be read: {exc.strerror or exc}.", hint="Check the path after `mock:`."
        ) from exc
    if len(data) > MAX_SCRIPT_BYTES:
        raise UsageError(f"Mock script {path} has {len(data)} bytes.", hint=f"At most {MAX_SCRIPT_BYTES} are read.")
    try:
        text = data.decode("utf-8")
        tree: object = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as exc:
        # JSONDecodeError, TOMLDecodeError and UnicodeDecodeError are all ValueErrors, and say where
        raise UsageError(
            f"Mock script {path} is not {path.suffix[1:].upper()}: {exc}.", hint="Fix the file at that place."
        ) from exc
    try:
        return msgspec.convert(tree, Script)
    except (msgspec.ValidationError, RecursionError) as exc:
        what, _, place = str(exc).partition(" - at `$")
        place = place.strip("`.") or "the top level"
        raise UsageError(
            f"Mock script {path} breaks the format at {place}: {what}.",
            hint="`python -m pydoc runner.models.script` describes it.",
        ) from exc


def _strings(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    return []
