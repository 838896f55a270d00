"""Fields of a chat request that are not a harness's to set, because training decides them or cannot honour them.

A trainer samples with its own settings, gives one answer per request, and trains on what the model itself chose to
write. A field that asks for anything else is found here, by its name and its value. Which ones those are, and of which
kind, is what an environment's own `validation_diagnostics` finds in a harness's configuration, so that the same
setting has the same code in both; beside them stand fields of the same effect that common servers add.

`null` asks for nothing and is no finding. A value that changes nothing wherever it is sent (`n: 1`) is none, either. A
sampling control at the API's documented default (`temperature: 1`) is a warning: a trainer's own default may differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from runner.gateway.findings import Code, Finding, Severity
from runner.text import one_line

MAX_VALUE_CHARS: Final = 60
"""Shown of a field's value; most are numbers or words."""


@dataclass(frozen=True, slots=True)
class _Control:
    """A field that is looked for.

    Args:
        code: Kind of finding.
        why: Why it is one.
        harmless: Values beside null that ask for nothing.
        default: Values that are the API's own default, where a trainer's may be another.
    """

    code: Code
    why: str
    harmless: tuple[object, ...] = ()
    default: tuple[object, ...] = ()


def _sampling(default: tuple[object, ...] = (), harmless: tuple[object, ...] = ()) -> _Control:
    return _Control("trainer_owned_model_control", "how answers are sampled is the trainer's to set", harmless, default)


def _unsupported(why: str, *harmless: object) -> _Control:
    return _Control("unsupported_model_control", why, harmless)


_ONE = "each request has one answer, drawn in one way"
_OWN = "what the model writes is its own choice"
_RECORDED = "the trainer records what it needs of an answer itself"
_TEXT = "answers are text and tool calls"
_CHAT = "the trainer renders messages as it was set up to"
_CAP = "an answer may end earlier, where the context does"

CONTROLS: Final[Mapping[str, _Control]] = {
    "temperature": _sampling((1,)),
    "top_p": _sampling((1,)),
    "top_k": _sampling((0, -1)),
    "presence_penalty": _sampling((0,)),
    "frequency_penalty": _sampling((0,)),
    "seed": _sampling(),
    "stop": _sampling(harmless=([],)),
    "stop_token_ids": _sampling(harmless=([],)),
    "ignore_eos": _sampling(harmless=(False,)),
    "max_tokens": _Control("harness_output_cap", _CAP),
    "max_completion_tokens": _Control("harness_output_cap", _CAP),
    **dict.fromkeys(
        ("max_new_tokens", "min_tokens", "min_p", "typical_p", "repetition_penalty", "length_penalty", "do_sample"),
        _unsupported("how answers are sampled is the trainer's to set"),
    ),
    "n": _unsupported(_ONE, 1),
    **dict.fromkeys(("best_of", "num_beams"), _unsupported(_ONE)),
    "use_beam_search": _unsupported(_ONE, False),
    "tool_choice": _unsupported(_OWN, "auto"),
    "parallel_tool_calls": _unsupported(_OWN, True),
    "response_format": _unsupported(_OWN, {}, {"type": "text"}),
    "logit_bias": _unsupported(_OWN, {}),
    **dict.fromkeys(
        ("function_call", "functions", "prediction", "reasoning_effort", "verbosity", "grammar"), _unsupported(_OWN)
    ),
    # forced forms of an answer, as vLLM, SGLang and llama.cpp name them
    **dict.fromkeys(
        (
            "bad_words", "ebnf", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "json_schema",
            "logits_processors", "regex", "structured_outputs",
        ),
        _unsupported(_OWN),
    ),
    "logprobs": _unsupported(_RECORDED, False),
    **dict.fromkeys(("top_logprobs", "prompt_logprobs", "return_routed_experts"), _unsupported(_RECORDED)),
    "echo": _unsupported(_RECORDED, False),
    "store": _unsupported("nothing is kept for the harness on the server", False),
    "modalities": _unsupported(_TEXT, [], ["text"]),
    "audio": _unsupported(_TEXT),
    "web_search_options": _unsupported("the model has the tools of the environment and no others"),
    "chat_template": _unsupported(_CHAT),
    "chat_template_kwargs": _unsupported(_CHAT, {}),
    "add_generation_prompt": _unsupported(_CHAT, True),
    "continue_final_message": _unsupported(_CHAT, False),
}  # fmt: skip


def controls_in(document: Mapping[str, object], call: int) -> Iterator[Finding]:
    """Give what is found among the fields of one request's body, in the order of the table."""
    for name, control in CONTROLS.items():
        value = document.get(name)
        if value is None or _among(value, control.harmless):
            continue
        severity: Severity = "error"
        by_default = _among(value, control.default)
        if by_default or control.code == "harness_output_cap":
            severity = "warning"
        fact = f"{name} is {_shown(value)}{', the default of the API' if by_default else ''}"
        yield Finding(
            code=control.code,
            severity=severity,
            field=name,
            message=f"{fact}: {control.why}. Leave it out.",
            call=call,
        )


def _among(value: object, values: tuple[object, ...]) -> bool:
    # true is no 1 here, and false no 0
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _shown(value: object) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of many digits"
    return one_line(json.dumps(value if not isinstance(value, str) else value[: 2 * MAX_VALUE_CHARS]), MAX_VALUE_CHARS)
