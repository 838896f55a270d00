"""An agent for Harbor that a model drives by text: one block of shell commands a turn, and its output as the answer.

It runs outside of the trial's sandbox, beside Harbor, and sends each block there. Where the model is, and the key for
it, come as `OPENAI_BASE_URL` and `OPENAI_API_KEY`; its name comes as `openai/<name>`.
"""

import re
from pathlib import Path
from typing import Any

import openai
from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

PROMPT = (Path(__file__).parent / "prompt.txt").read_text("utf-8")
BLOCK = re.compile(r"```(?:bash|sh)?\n(.*?)```", re.DOTALL)


class ShellAgent(BaseAgent):
    """Gives the model `max_turns` turns; it ends earlier by a reply without a block."""

    def __init__(
        self,
        *args: Any,
        max_turns: int = 5,
        command_timeout_sec: int = 60,
        output_chars: int = 2000,
        answer_tokens: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.max_turns = max_turns
        self.command_timeout_sec = command_timeout_sec
        self.output_chars = output_chars
        self.answer_tokens = answer_tokens

    @staticmethod
    def name() -> str:
        return "shell-agent"

    def version(self) -> str:
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed: commands are all it needs."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        model = (self.model_name or "").removeprefix("openai/")
        messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": instruction}]
        context.n_input_tokens = context.n_output_tokens = 0
        async with openai.AsyncOpenAI(
            base_url=self.extra_env["OPENAI_BASE_URL"], api_key=self.extra_env["OPENAI_API_KEY"]
        ) as client:
            for _ in range(self.max_turns):
                try:
                    # a small model may repeat itself until its context is full
                    answer = await client.chat.completions.create(
                        model=model, messages=messages, max_tokens=self.answer_tokens
                    )
                except openai.BadRequestError as error:
                    if error.code not in ("context_budget_exceeded", "context_length_exceeded"):
                        raise
                    # the trial goes on to its verifier: what was done until then counts
                    context.metadata = {"termination_reason": "context_exceeded"}
                    return
                if answer.usage is not None:
                    context.n_input_tokens += answer.usage.prompt_tokens
                    context.n_output_tokens += answer.usage.completion_tokens
                text = answer.choices[0].message.content or ""
                block = BLOCK.search(text)
                if block is None:
                    return
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": await self._output(block.group(1), environment)},
                ]
        context.metadata = {"termination_reason": "max_turns_exceeded"}

    async def _output(self, commands: str, environment: BaseEnvironment) -> str:
        """Run commands, and return what they printed, with the middle cut out of what is too long."""
        result = await environment.exec(commands, timeout_sec=self.command_timeout_sec)
        printed = "\n".join(part for part in (result.stdout, result.stderr) if part)
        if len(printed) > self.output_chars:
            half = self.output_chars // 2
            printed = f"{printed[:half]}\n… {len(printed) - 2 * half} characters left out …\n{printed[-half:]}"
        return f"exit code {result.return_code}\n{printed}"
