"""An environment whose rollouts are trials of Harbor."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from benchmax.auth import ModelRequestContext
from benchmax.envs.environment import Environment
from benchmax.envs.harbor.bundled_agent import BundledHarborAgent
from benchmax.envs.harbor.credentials import SandboxCredentials, sandbox_credentials_scope
from benchmax.envs.harbor.dataset import HarborDataset, one_side, validate_eval_ratio, whole_path
from benchmax.envs.harbor.dep_check import require_harbor
from benchmax.envs.harbor.model_controls import diagnose_controls
from benchmax.envs.harbor.results import attempt_of_failure, attempt_of_result
from benchmax.envs.harbor.types import HarborTrialTemplate
from benchmax.envs.shared_types import (
    DatasetSplit,
    RolloutAttempt,
    RolloutOutcome,
    RolloutRequest,
    ValidationDiagnostic,
)

if TYPE_CHECKING:
    from harbor.models.job.config import DatasetConfig
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.models.trial.result import TrialResult
    from harbor.trial.trial import Trial

__all__ = ["HarborEnv"]

logger = logging.getLogger(__name__)

_TRIAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_MODAL_DEFAULTS: Final[Mapping[str, object]] = {
    "app_name": "harbor-benchmax",
    "sandbox_timeout_secs": 10800,
    "sandbox_idle_timeout_secs": 1800,
}


class HarborEnv(Environment["TaskConfig", RolloutAttempt]):
    """Runs one trial of Harbor for each rollout, with the request's model in the harness.

    Args:
        dataset: Where the tasks are.
        trial: What all trials have in common.
        sandbox_credentials: What the sandbox provider's client needs; required for Modal and Daytona.
        eval_dataset: Tasks of the eval split; `None` takes them out of `dataset`.
        eval_ratio: Share of `dataset` that is the eval split, from 0 to below 1, where there is no `eval_dataset`.
        max_concurrent_trials: At most so many trials at once, over all groups; `None` sets no limit.
        requires_public_model_endpoint: Whether harnesses run where this machine's loopback cannot be reached.

    Raises:
        ImportError: Harbor is not installed.
        TypeError: an argument is of another type.
        ValueError: an argument is out of range, sets what each request decides (model, concurrency), has no verifier,
            or the credentials are not for the environment's provider.
    """

    def __init__(
        self,
        *,
        dataset: DatasetConfig,
        trial: HarborTrialTemplate,
        sandbox_credentials: SandboxCredentials | None = None,
        eval_dataset: DatasetConfig | None = None,
        eval_ratio: float = 0.1,
        max_concurrent_trials: int | None = None,
        requires_public_model_endpoint: bool = True,
    ) -> None:
        require_harbor()
        _check_datasets(dataset, eval_dataset)
        _check_trial(trial)
        validate_eval_ratio(eval_ratio)
        _check_rest(trial, sandbox_credentials, max_concurrent_trials)
        self._dataset = dataset.model_copy(deep=True)
        self._eval_dataset = None if eval_dataset is None else eval_dataset.model_copy(deep=True)
        self._eval_ratio = eval_ratio
        self._trial = _with_modal_defaults(trial)
        self._sandbox_credentials = sandbox_credentials
        self._max_concurrent_trials = max_concurrent_trials
        self._requires_public_model_endpoint = requires_public_model_endpoint
        self._datasets: dict[tuple[Path, DatasetSplit | None, int | None], HarborDataset] = {}
        # a lock or semaphore belongs to the event loop that first waited for it, and an environment may outlive a loop
        self._resolving: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @property
    def requires_public_model_endpoint(self) -> bool:
        """Whether harnesses run where this machine's loopback cannot be reached, as the constructor was told."""
        return self._requires_public_model_endpoint

    def validation_diagnostics(self) -> Sequence[ValidationDiagnostic]:
        """Name options of the harness that a trainer decides on, or that its endpoint does not offer."""
        return diagnose_controls(_agent_config(self._trial).kwargs)

    async def create_dataset(
        self, split: DatasetSplit, base_dir: Path, *, max_examples: int | None = None
    ) -> HarborDataset:
        """Resolve the tasks of a split below `base_dir`, once per folder.

        Raises:
            ValueError: the split is unknown or empty, or whatever `HarborDataset.create` refuses.
            RuntimeError: a snapshot or a package does not hold what it should.
        """
        if split not in ("train", "eval"):
            raise ValueError(f"unknown dataset split {split!r}; HarborEnv has 'train' and 'eval'.")
        root = await asyncio.to_thread(whole_path, base_dir)
        if self._eval_dataset is not None:
            config = self._dataset if split == "train" else self._eval_dataset
            return await self._resolve(config, root / split, None, max_examples)
        if max_examples is not None:
            return await self._resolve(self._dataset, root / "main", split, max_examples)
        complete = await self._resolve(self._dataset, root / "main", None, None)
        return HarborDataset(one_side(tuple(complete), split, self._eval_ratio))

    async def _resolve(
        self, config: DatasetConfig, folder: Path, split: DatasetSplit | None, max_examples: int | None
    ) -> HarborDataset:
        key = folder, split, max_examples
        async with self._resolving.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if key not in self._datasets:
                self._datasets[key] = await HarborDataset.create(
                    config,
                    base_dir=folder,
                    max_examples=max_examples,
                    split=split,
                    eval_ratio=None if split is None else self._eval_ratio,
                )
            return self._datasets[key]

    async def run_group(self, requests: Iterable[RolloutRequest[TaskConfig]]) -> Mapping[str, RolloutOutcome]:
        """Run a group of rollouts with the sandbox credentials in the process environment."""
        async with sandbox_credentials_scope(self._sandbox_credentials):
            return await super().run_group(requests)

    async def run_rollout(self, request: RolloutRequest[TaskConfig]) -> RolloutAttempt:
        """Run one trial.

        Returns:
            The attempt; without rewards and with an `error` if the trial failed.

        Raises:
            TypeError: the example's payload is not a `TaskConfig` of Harbor.
            ValueError: the rollout id is no name for a folder, the request's credentials are not a bearer token, or a
                reward of the verifier is not a finite number.
        """
        async with self._slot(), sandbox_credentials_scope(self._sandbox_credentials):
            config = await self._trial_config(request)
            return await self._run_trial(request, config)

    def _slot(self) -> AbstractAsyncContextManager[object]:
        if self._max_concurrent_trials is None:
            return nullcontext()
        loop = asyncio.get_running_loop()
        return self._slots.setdefault(loop, asyncio.Semaphore(self._max_concurrent_trials))

    async def _trial_config(self, request: RolloutRequest[TaskConfig]) -> TrialConfig:
        from harbor.models.trial.config import TaskConfig, TrialConfig

        task: object = request.example.payload
        if not isinstance(task, TaskConfig):
            raise TypeError(f"An example of HarborEnv needs a Harbor TaskConfig as payload, got {type(task).__name__}.")
        if _TRIAL_NAME.fullmatch(request.rollout_id) is None:
            raise ValueError(
                f"The rollout_id {request.rollout_id!r} cannot name a trial: it must begin with a letter or digit, "
                "and have only letters, digits, '.', '_' and '-'."
            )
        template = self._trial
        return TrialConfig(
            task=task.model_copy(deep=True),
            trial_name=request.rollout_id,
            trials_dir=template.trials_dir,
            timeout_multiplier=template.timeout_multiplier,
            agent_timeout_multiplier=template.agent_timeout_multiplier,
            verifier_timeout_multiplier=template.verifier_timeout_multiplier,
            agent_setup_timeout_multiplier=template.agent_setup_timeout_multiplier,
            environment_build_timeout_multiplier=template.environment_build_timeout_multiplier,
            agent=_with_model(template.agent, request, await _bearer_token(request)),
            environment=template.environment.model_copy(deep=True),
            verifier=template.verifier.model_copy(deep=True),
            artifacts=list(template.artifacts),
            extra_instruction_paths=list(template.extra_instruction_paths),
        )

    async def _run_trial(self, request: RolloutRequest[TaskConfig], config: TrialConfig) -> RolloutAttempt:
        from harbor.trial.trial import Trial

        rollout_id, example_id, harness = request.rollout_id, request.example.id, _agent_config(self._trial)
        logger.info(
            "harbor.rollout.start rollout_id=%s task=%s sandbox=%s harness=%s model=%s",
            rollout_id,
            example_id,
            config.environment.import_path or _provider(config.environment),
            harness.name or harness.import_path,
            request.model,
        )
        try:
            trial = await Trial.create(config)
            result = await _result(trial)
        except Exception as error:
            logger.exception("harbor.rollout.failed rollout_id=%s task=%s", rollout_id, example_id)
            return attempt_of_failure(rollout_id, error)
        attempt = attempt_of_result(rollout_id, result, config.trials_dir / config.trial_name)
        logger.info(
            "harbor.rollout.done rollout_id=%s termination_reason=%s rewards=%s",
            rollout_id,
            attempt.termination_reason,
            attempt.rewards,
        )
        return attempt


@runtime_checkable
class _Reserving(Protocol):
    """An environment of a trial that may have to wait for its sandbox, such as `LocalSandbox`."""

    async def reserve(self) -> None: ...

    async def stop(self, delete: bool) -> None: ...


async def _result(trial: Trial) -> TrialResult:
    environment = getattr(trial, "agent_environment", None)
    if not isinstance(environment, _Reserving):
        return await trial.run()
    try:
        await environment.reserve()
        return await trial.run()
    finally:
        # a trial that fails early does not come to it
        await environment.stop(delete=True)


def _check_datasets(dataset: object, eval_dataset: object) -> None:
    from harbor.models.job.config import DatasetConfig

    if not isinstance(dataset, DatasetConfig):
        raise TypeError(f"HarborEnv needs a DatasetConfig as dataset, got {type(dataset).__name__}.")
    if eval_dataset is not None and not isinstance(eval_dataset, DatasetConfig):
        raise TypeError(f"HarborEnv needs a DatasetConfig or None as eval_dataset, got {type(eval_dataset).__name__}.")


def _check_trial(trial: object) -> None:
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, VerifierConfig

    if not isinstance(trial, HarborTrialTemplate):
        raise TypeError(f"HarborEnv needs a HarborTrialTemplate as trial, got {type(trial).__name__}.")
    agent: object = trial.agent
    if not isinstance(agent, (AgentConfig, BundledHarborAgent)):
        raise TypeError(
            f"HarborTrialTemplate.agent must be an AgentConfig or a BundledHarborAgent, got {type(agent).__name__}."
        )
    if (model_name := _agent_config(trial).model_name) is not None:
        raise ValueError(f"The agent's model_name must be unset, got {model_name!r}; each request brings its model.")
    environment: object = trial.environment
    if not isinstance(environment, EnvironmentConfig):
        raise TypeError(
            f"HarborTrialTemplate.environment must be an EnvironmentConfig, got {type(environment).__name__}."
        )
    verifier: object = trial.verifier
    if not isinstance(verifier, VerifierConfig):
        raise TypeError(f"HarborTrialTemplate.verifier must be a VerifierConfig, got {type(verifier).__name__}.")
    if verifier.disable:
        raise ValueError("HarborEnv needs an enabled verifier: it is where rewards come from.")


def _check_rest(trial: HarborTrialTemplate, credentials: object, max_concurrent_trials: object) -> None:
    if credentials is not None and not isinstance(credentials, SandboxCredentials):
        raise TypeError(
            f"HarborEnv needs SandboxCredentials or None as sandbox_credentials, got {type(credentials).__name__}."
        )
    count = max_concurrent_trials
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count <= 0):
        raise ValueError(f"max_concurrent_trials must be None or a positive integer, got {count!r}.")
    agent = _agent_config(trial)
    if agent.n_concurrent is not None or agent.concurrency_group is not None:
        raise ValueError(
            "The agent's n_concurrent and concurrency_group must be unset: Benchmax owns rollout-group concurrency. "
            "Use max_concurrent_trials."
        )
    provider = _provider(trial.environment)
    if trial.environment.import_path is not None or provider is None:
        return
    if credentials is None:
        if provider in ("modal", "daytona"):
            raise ValueError(f"An environment of type {provider!r} needs explicit sandbox_credentials.")
    elif credentials.provider is not None and credentials.provider != provider:
        raise ValueError(
            f"The sandbox_credentials are for {credentials.provider!r}, but the environment is of type {provider!r}."
        )


def _agent_config(trial: HarborTrialTemplate) -> AgentConfig:
    return trial.agent.config if isinstance(trial.agent, BundledHarborAgent) else trial.agent


def _provider(environment: EnvironmentConfig) -> str | None:
    return None if environment.type is None else environment.type.value


def _with_modal_defaults(trial: HarborTrialTemplate) -> HarborTrialTemplate:
    if _provider(trial.environment) != "modal":
        return trial
    environment = trial.environment.model_copy(deep=True)
    environment.kwargs = {**_MODAL_DEFAULTS, **environment.kwargs}
    return replace(trial, environment=environment)


async def _bearer_token(request: RolloutRequest[TaskConfig]) -> str:
    context = ModelRequestContext(request.base_url, request.model, request.rollout_id)
    headers = await request.model_auth.headers_for_request(context)
    authorization = headers.get("Authorization")
    if not isinstance(authorization, str) or not authorization.startswith("Bearer "):
        raise ValueError(
            "HarborEnv needs a Bearer token: the request's model_auth must give a header "
            "'Authorization: Bearer …', which the harness gets as its API key."
        )
    return authorization.removeprefix("Bearer ")


def _with_model(
    agent: AgentConfig | BundledHarborAgent, request: RolloutRequest[TaskConfig], token: str
) -> AgentConfig:
    """Return a copy of an agent's configuration that calls the request's model."""
    config = agent._harbor_config() if isinstance(agent, BundledHarborAgent) else agent.model_copy(deep=True)
    config.env = {
        **config.env,
        "OPENAI_API_KEY": token,
        "OPENAI_BASE_URL": request.base_url,
        "OPENAI_API_BASE": request.base_url,
    }
    config.model_name = request.model if request.model.startswith("openai/") else f"openai/{request.model}"
    return config
