from typing import Any

class AgentContext:
    metadata: dict[str, Any] | None
    n_input_tokens: int | None
    n_output_tokens: int | None
