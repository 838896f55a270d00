"""What every trial of an environment has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor.models.trial.config import AgentConfig, ArtifactConfig, EnvironmentConfig, VerifierConfig

    from benchmax.envs.harbor.bundled_agent import BundledHarborAgent

__all__ = ["HarborTrialTemplate"]

_MULTIPLIERS = (
    "timeout_multiplier",
    "agent_timeout_multiplier",
    "verifier_timeout_multiplier",
    "agent_setup_timeout_multiplier",
    "environment_build_timeout_multiplier",
)


@dataclass(frozen=True, slots=True, repr=False)
class HarborTrialTemplate:
    """The configuration of trials, apart from task, model and name. `repr` leaves out what may hold secrets.

    Args:
        agent: The harness; its model comes from each request.
        environment: The sandbox.
        verifier: What gives rewards.
        trials_dir: Folder in which each trial gets one of its own; `~` is expanded.
        timeout_multiplier: Factor of all time limits, above 0.
        agent_timeout_multiplier: Factor of the agent's limit in place of `timeout_multiplier`.
        verifier_timeout_multiplier: The same for the verifier.
        agent_setup_timeout_multiplier: The same for installing the agent.
        environment_build_timeout_multiplier: The same for starting the sandbox.
        artifacts: What is fetched from the sandbox after a trial.
        extra_instruction_paths: Files appended to each task's instruction; `~` is expanded.

    Raises:
        ValueError: agent, environment or verifier is `None`, or a multiplier is not above 0.
    """

    agent: AgentConfig | BundledHarborAgent
    environment: EnvironmentConfig
    verifier: VerifierConfig
    trials_dir: Path = Path("trials")
    timeout_multiplier: float = 1.0
    agent_timeout_multiplier: float | None = None
    verifier_timeout_multiplier: float | None = None
    agent_setup_timeout_multiplier: float | None = None
    environment_build_timeout_multiplier: float | None = None
    artifacts: Sequence[str | ArtifactConfig] = ()
    extra_instruction_paths: Sequence[Path] = ()

    def __post_init__(self) -> None:
        for name in ("agent", "environment", "verifier"):
            if getattr(self, name) is None:
                raise ValueError(f"HarborTrialTemplate needs a configuration as {name}, got None.")
        for name in _MULTIPLIERS:
            value: float | None = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"HarborTrialTemplate.{name} must be above 0, got {value!r}.")
        _set = object.__setattr__
        _set(self, "trials_dir", Path(self.trials_dir).expanduser())
        _set(self, "artifacts", tuple(self.artifacts))
        _set(self, "extra_instruction_paths", tuple(Path(path).expanduser() for path in self.extra_instruction_paths))

    def __repr__(self) -> str:
        return (
            f"HarborTrialTemplate(trials_dir={str(self.trials_dir)!r}, "
            f"timeout_multiplier={self.timeout_multiplier!r}, artifacts={len(self.artifacts)})"
        )
