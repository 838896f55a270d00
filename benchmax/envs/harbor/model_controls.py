"""Options of a harness that steer the model, and who decides on them where models are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from benchmax.envs.shared_types import ValidationDiagnostic

__all__ = ["diagnose_controls"]

_OUTPUT_CAPS: Final = frozenset({"max_tokens", "max_completion_tokens"})

_OWNED_BY_TRAINER: Final = frozenset(
    {"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "stop"}
)

_UNSUPPORTED: Final = frozenset({"return_routed_experts"})

_NO_SETTING: Final[tuple[object, ...]] = (None,)

_UNSUPPORTED_UNLESS: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(
        (
            "best_of",
            "do_sample",
            "function_call",
            "functions",
            "grammar",
            "max_new_tokens",
            "min_p",
            "min_tokens",
            "num_beams",
            "prediction",
            "reasoning_effort",
            "repetition_penalty",
            "top_logprobs",
            "typical_p",
            "verbosity",
            "web_search_options",
        ),
        _NO_SETTING,
    ),
    "n": (None, 1),
    "tool_choice": (None, "auto"),
    "logprobs": (None, False),
    "parallel_tool_calls": (None, True),
    "response_format": (None, {}, {"type": "text"}),
    "logit_bias": (None, {}),
}
"""Controls that do no harm with the values listed, which are what happens without them."""


def diagnose_controls(kwargs: Mapping[str, object]) -> tuple[ValidationDiagnostic, ...]:
    """Return what there is to say of an agent's options, in their order, nested mappings included."""
    found = (_diagnose(location, key, value) for location, key, value in _walk(kwargs, "agent.kwargs"))
    return tuple(diagnostic for diagnostic in found if diagnostic is not None)


def _walk(options: Mapping[str, object], place: str) -> Iterator[tuple[str, str, object]]:
    for key, value in options.items():
        location = f"{place}.{key}"
        yield location, key, value
        if isinstance(value, Mapping):
            yield from _walk(value, location)


def _diagnose(location: str, key: str, value: object) -> ValidationDiagnostic | None:
    if key in _OUTPUT_CAPS:
        return ValidationDiagnostic(
            "warning",
            "harness_output_cap",
            f"{location} caps what the model may say in one answer; the trainer's own limit may be another. "
            "Leave it out unless the harness needs it.",
            location,
        )
    if key in _OWNED_BY_TRAINER:
        return ValidationDiagnostic(
            "error",
            "trainer_owned_model_control",
            f"{location} is for the trainer to decide: it must know how answers were sampled. Leave it out.",
            location,
        )
    if key in _UNSUPPORTED or (key in _UNSUPPORTED_UNLESS and not _is_one_of(value, _UNSUPPORTED_UNLESS[key])):
        return ValidationDiagnostic(
            "error",
            "unsupported_model_control",
            f"{location} is not supported by trainers' endpoints, and is set to {value!r}. Leave it out.",
            location,
        )
    return None


def _is_one_of(value: object, harmless: tuple[object, ...]) -> bool:
    return any(value == one for one in harmless)
