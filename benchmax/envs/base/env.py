"""The stock environment: a loop of model turns and tool calls, then a reward."""

from __future__ import annotations

import dataclasses
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmax.auth import ModelRequestContext
from benchmax.envs.base.dataset import JsonRow
from benchmax.envs.base.openai_types import Message, Messages, Tool
from benchmax.envs.base.tool_calls import RejectedArguments, advertised_names, parse_arguments, result_content
from benchmax.envs.dataset import Dataset
from benchmax.envs.environment import Environment, settle_termination_reason
from benchmax.envs.shared_types import (
    DatasetSplit,
    Example,
    RewardMap,
    RolloutAttempt,
    RolloutFailure,
    RolloutRequest,
)
from benchmax.envs.transcript import show_transcript

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat.chat_completion import Choice

__all__ = ["BaseEnv", "BaseRollout"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRollout(RolloutAttempt):
    """An attempt with its transcript.

    Args:
        rollout_id: Id of the request it answers.
        termination_reason: Why it ended.
        rewards: Rewards by name; `None` means not scored yet.
        error: What went wrong, if anything did.
        messages: The whole transcript, prompt included.
        example_args: The example's payload without `prompt_messages`.
        split: Split the example comes from.
    """

    messages: Messages
    example_args: Mapping[str, Any]
    split: DatasetSplit = "train"


class BaseEnv(Environment[JsonRow, BaseRollout]):
    """Calls a chat model until it answers without tool calls, running the tools it asks for, and then scores.

    An example's payload is a mapping with `prompt_messages`, a non-empty list of chat messages; its other fields
    reach the reward as `example_args`.

    Args:
        max_turns: Model turns per rollout, at least 1; overrides the class attribute. It has to come from one of both.
        max_tool_calls: Tool calls per rollout, at least 0; overrides the class attribute. `None` does not limit.

    Raises:
        ValueError: a limit is not such an integer.
    """

    max_turns: int | None = None
    max_tool_calls: int | None = None

    def __init__(self, *, max_turns: int | None = None, max_tool_calls: int | None = None) -> None:
        if max_turns is not None:
            self.max_turns = max_turns
        if max_tool_calls is not None:
            self.max_tool_calls = max_tool_calls
        _check_limits(self)

    @abstractmethod
    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> Dataset[JsonRow]:
        """Return the examples of a split; see `Environment.create_dataset`."""

    async def list_tools(self) -> list[Tool]:
        """Return the tools to offer, in OpenAI's format; asked once per rollout. Default none."""
        return []

    async def run_tool(self, rollout_id: str, tool_name: str, **tool_args: Any) -> Any:
        """Run one tool call and return its result.

        Args:
            rollout_id: Id of the rollout.
            tool_name: One of the listed names.
            **tool_args: The model's arguments.

        Raises:
            RolloutFailure: ends the rollout with its reason; any other exception ends it with `tool_error`.
        """
        raise ValueError(f"Unknown tool {tool_name!r}: list_tools offers it, so override run_tool to run it.")

    async def compute_reward(self, rollout: BaseRollout) -> RewardMap | None:
        """Score one rollout that ended in a scorable way; `None` leaves it to `compute_group_rewards`.

        Raises:
            RolloutFailure: scoring failed in operation; any other exception becomes `reward_error`.
        """
        return None

    def rollout_context(self, rollout_id: str, example: Example[JsonRow]) -> AbstractAsyncContextManager[Any]:
        """Return an async context manager around one rollout, its reward included; default nothing."""
        return nullcontext()

    async def run_rollout(self, request: RolloutRequest[JsonRow]) -> BaseRollout:
        """Run one rollout: model turns, tools, reward.

        Raises:
            ValueError: a limit is invalid, `max_turns` is not set, or `prompt_messages` is not a non-empty list.
            TypeError: the payload or a prompt message has the wrong type, or the model made a call that is not a
                function call.
        """
        # here and not at the top: it loads openai and its HTTP library, which an import must not
        from benchmax import transport

        _check_limits(self)
        if self.max_turns is None:
            raise ValueError(
                f"{type(self).__name__}.max_turns is not set; "
                "set the class attribute or pass max_turns to super().__init__()."
            )
        messages, example_args = _split_payload(request.example.payload)
        show_transcript(messages)
        async with self.rollout_context(request.rollout_id, request.example):
            tools = await self.list_tools()
            async with transport.rollout_client(request.base_url) as client:
                reason = await _converse(self, client, request, messages, tools, self.max_turns)
                rollout = BaseRollout(
                    rollout_id=request.rollout_id,
                    termination_reason=reason,
                    messages=messages,
                    example_args=example_args,
                    split=request.split,
                )
                return await _score_rollout(self, rollout)


# Module functions and not private methods: a subclass is somebody else's code and may use any name of its own.


def _check_limits(environment: BaseEnv) -> None:
    turns, calls, owner = environment.max_turns, environment.max_tool_calls, type(environment).__name__
    if turns is not None and not _is_integer_from(turns, 1):
        raise ValueError(f"{owner}.max_turns must be a positive integer or None, got {turns!r}.")
    if calls is not None and not _is_integer_from(calls, 0):
        raise ValueError(f"{owner}.max_tool_calls must be a non-negative integer or None, got {calls!r}.")


async def _converse(
    environment: BaseEnv,
    client: AsyncOpenAI,
    request: RolloutRequest[JsonRow],
    messages: Messages,
    tools: list[Tool],
    max_turns: int,
) -> str:
    """Run model turns, appending to `messages`; return the termination reason."""
    names = advertised_names(tools or ())
    calls_used = 0
    for _ in range(max_turns):
        choice, failure = await _model_turn(client, request, messages, tools)
        if failure is not None:
            return failure
        assistant, calls = _assistant_message(choice)
        messages.append(assistant)
        if not calls:
            return _finish_reason(request.rollout_id, choice)
        if environment.max_tool_calls is not None and calls_used + len(calls) > environment.max_tool_calls:
            return "tool_budget_exceeded"
        calls_used += len(calls)
        failure = await _run_tools(environment, request.rollout_id, names, calls, messages)
        if failure is not None:
            return failure
    return "max_turns_exceeded"


async def _run_tools(
    environment: BaseEnv,
    rollout_id: str,
    names: frozenset[str],
    calls: Sequence[Mapping[str, Any]],
    messages: Messages,
) -> str | None:
    """Run one turn's calls in order, appending their messages; on a failure append none and return its reason."""
    results: list[Any] = []
    try:
        for call in calls:
            content = await _run_call(environment, rollout_id, names, call["function"])
            results.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    except Exception as error:
        reason = error.termination_reason if isinstance(error, RolloutFailure) else "tool_error"
        logger.exception("base.rollout.tool_failed rollout_id=%s termination_reason=%s", rollout_id, reason)
        return reason
    messages.extend(results)
    return None


async def _run_call(environment: BaseEnv, rollout_id: str, names: frozenset[str], function: Mapping[str, Any]) -> Any:
    name = function["name"]
    if name not in names:
        return f"Unknown tool: {name}"
    try:
        arguments = parse_arguments(function["arguments"])
    except RejectedArguments as rejection:
        return str(rejection)
    return result_content(await environment.run_tool(rollout_id, name, **arguments))


async def _score_rollout(environment: BaseEnv, rollout: BaseRollout) -> BaseRollout:
    if rollout.termination_reason not in environment.scorable_termination_reasons:
        return dataclasses.replace(rollout, rewards={})
    try:
        rewards = await environment.compute_reward(rollout)
    except Exception as error:
        if isinstance(error, RolloutFailure):
            reason, text = error.termination_reason, str(error)
        else:
            reason, text = "reward_error", f"{type(error).__name__}: {error}"
        logger.exception(
            "base.rollout.reward_failed rollout_id=%s termination_reason=%s: %s", rollout.rollout_id, reason, text
        )
        settled = settle_termination_reason(rollout.termination_reason, reason)
        return dataclasses.replace(rollout, rewards={}, error=text, termination_reason=settled)
    return dataclasses.replace(rollout, rewards=rewards)


def _is_integer_from(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _split_payload(payload: object) -> tuple[Messages, dict[str, Any]]:
    """Copy the prompt messages (each shallowly) and the other fields out of an example's payload."""
    if not isinstance(payload, Mapping):
        raise TypeError(f"Example.payload must be a mapping with prompt_messages, got {type(payload).__name__}.")
    prompt = payload.get("prompt_messages")
    if not isinstance(prompt, list) or not prompt:
        raise ValueError(f"Example.payload['prompt_messages'] must be a non-empty list, got {prompt!r}.")
    messages: list[Any] = []
    for index, message in enumerate(prompt):
        if not isinstance(message, Mapping):
            raise TypeError(f"prompt_messages[{index}] must be a mapping, got {type(message).__name__}.")
        role = message.get("role")
        if not isinstance(role, str):
            raise TypeError(f"prompt_messages[{index}].role must be a string, got {role!r}.")
        messages.append(dict(message))
    return messages, {name: value for name, value in payload.items() if name != "prompt_messages"}


async def _model_turn(
    client: AsyncOpenAI, request: RolloutRequest[JsonRow], messages: Messages, tools: list[Tool]
) -> tuple[Any, str | None]:
    """Ask the model once; return its first choice, or nothing and the termination reason when it gave none."""
    from openai import BadRequestError

    context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
    offered: dict[str, Any] = {"tools": tools} if tools else {}
    try:
        headers = await request.model_auth.headers_for_request(context)
        response: Any = await client.chat.completions.create(
            model=request.model, messages=messages, extra_headers=headers, **offered
        )
    except BadRequestError as error:
        reason = "context_exceeded" if error.code == "context_budget_exceeded" else "model_error"
        _log_model_failure(logging.WARNING, request.rollout_id, reason, exc_info=True)
        return None, reason
    except Exception:  # noqa: BLE001 - whatever keeps the model from answering ends its rollout, not the group
        _log_model_failure(logging.ERROR, request.rollout_id, "model_error", exc_info=True)
        return None, "model_error"
    choices = getattr(response, "choices", None)
    if not choices:
        _log_model_failure(logging.ERROR, request.rollout_id, "model_error", ": response contained no choices")
        return None, "model_error"
    return choices[0], None


def _assistant_message(choice: Choice) -> tuple[Message, list[dict[str, Any]]]:
    """Return the transcript's form of a choice, and its tool calls in wire form."""
    calls: list[dict[str, Any]] = []
    for call in choice.message.tool_calls or ():
        if call.type != "function":
            raise TypeError(f"BaseEnv runs function tool calls only, but the model made one of type {call.type!r}.")
        function = {"name": call.function.name, "arguments": call.function.arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
    message: Any = {"role": "assistant", "content": choice.message.content}
    if calls:
        message["tool_calls"] = calls
    return message, calls


def _finish_reason(rollout_id: str, choice: Choice) -> str:
    finish: str | None = choice.finish_reason
    if finish is None:
        _log_model_failure(logging.ERROR, rollout_id, "model_error", ": response had no finish reason")
        return "model_error"
    return {"stop": "finished", "length": "output_exceeded"}.get(finish, finish)


def _log_model_failure(level: int, rollout_id: str, reason: str, what: str = "", *, exc_info: bool = False) -> None:
    logger.log(
        level,
        "base.rollout.model_failed rollout_id=%s termination_reason=%s%s",
        rollout_id,
        reason,
        what,
        exc_info=exc_info,
    )
