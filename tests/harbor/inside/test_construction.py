"""What `HarborEnv` refuses, in which order, and what it makes of what it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from harbor.models.job.config import DatasetConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, VerifierConfig

from benchmax.envs.harbor import (
    BundledAgentSource,
    BundledHarborAgent,
    CustomSandboxCredentials,
    DaytonaCredentials,
    HarborEnv,
    ModalCredentials,
)
from tests.harbor.inside.lab import SANDBOX, template

MODAL = ModalCredentials("id", "secret")
DAYTONA = DaytonaCredentials(api_key="key")
ANY = CustomSandboxCredentials({"A": "b"})


def env(**arguments: Any) -> HarborEnv:
    return HarborEnv(**{"dataset": DatasetConfig(path=Path("tasks")), "trial": template(), **arguments})


REFUSED: list[tuple[type[Exception], str, dict[str, Any]]] = [
    (TypeError, "as dataset", {"dataset": "tasks"}),
    (TypeError, "eval_dataset", {"eval_dataset": {"path": "tasks"}}),
    (TypeError, "HarborTrialTemplate", {"trial": AgentConfig(name="oracle")}),
    (TypeError, "HarborTrialTemplate.agent", {"trial": template(cast(Any, "oracle"), environment="docker")}),
    (ValueError, "model_name must be unset", {"trial": template(AgentConfig(name="oracle", model_name="m"))}),
    (TypeError, "EnvironmentConfig", {"trial": template(environment="docker")}),
    (TypeError, "VerifierConfig", {"trial": template(verifier="verifier")}),
    (ValueError, "enabled verifier", {"trial": template(verifier=VerifierConfig(disable=True))}),
    *[(ValueError, "eval_ratio", {"eval_ratio": value}) for value in (-0.1, 1, 1.0, True, "0.1", float("nan"), None)],
    (TypeError, "sandbox_credentials", {"sandbox_credentials": {"A": "b"}}),
    *[(ValueError, "max_concurrent_trials", {"max_concurrent_trials": value}) for value in (0, -1, True, 1.5, "1")],
    (
        ValueError,
        "Benchmax owns rollout-group concurrency",
        {"trial": template(AgentConfig(name="oracle", n_concurrent=2))},
    ),
    (
        ValueError,
        "Benchmax owns rollout-group concurrency",
        {"trial": template(AgentConfig(name="oracle", n_concurrent=2, concurrency_group="g"))},
    ),
    (ValueError, "explicit sandbox_credentials", {"trial": template(environment=EnvironmentConfig(type="modal"))}),
    (ValueError, "explicit sandbox_credentials", {"trial": template(environment=EnvironmentConfig(type="daytona"))}),
    *[
        (
            ValueError,
            "sandbox_credentials are for",
            {"trial": template(environment=EnvironmentConfig(type=kind)), "sandbox_credentials": credentials},
        )
        for kind, credentials in [
            ("docker", MODAL),
            ("daytona", MODAL),
            ("modal", DAYTONA),
            ("modal", CustomSandboxCredentials({"A": "b"}, provider="e2b")),
        ]
    ],
]
"""In the order in which they are checked."""


@pytest.mark.parametrize(("error", "text", "arguments"), REFUSED)
def test_what_cannot_be_meant_is_refused(error: type[Exception], text: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=text):
        env(**arguments)


def test_checks_are_made_in_a_fixed_order() -> None:
    # each set of arguments breaks everything that comes later, too
    later: dict[str, Any] = {}
    for error, text, arguments in reversed([row for row in REFUSED if "trial" not in row[2]]):
        later = {**later, **arguments}
        with pytest.raises(error, match=text):
            env(**later)


@pytest.mark.parametrize(
    "arguments",
    [
        {"trial": template(environment=EnvironmentConfig(import_path=SANDBOX)), "sandbox_credentials": MODAL},
        {"trial": template(environment=EnvironmentConfig(type="modal")), "sandbox_credentials": MODAL},
        {"trial": template(environment=EnvironmentConfig(type="modal")), "sandbox_credentials": ANY},
        {"trial": template(environment=EnvironmentConfig(type="docker")), "sandbox_credentials": ANY},
        {"trial": template(environment=EnvironmentConfig(type="docker"))},
        {"trial": template(environment=EnvironmentConfig(type="daytona")), "sandbox_credentials": DAYTONA},
        {"eval_ratio": 0},
        {"max_concurrent_trials": 1},
    ],
)
def test_what_fits_together_is_taken(arguments: dict[str, Any]) -> None:
    env(**arguments)


def test_a_bundled_agents_own_configuration_is_checked() -> None:
    source = BundledAgentSource.from_files({"mine.py": b""})
    agent = BundledHarborAgent(AgentConfig(import_path="mine:Mine", model_name="m"), source)
    with pytest.raises(ValueError, match="model_name must be unset"):
        env(trial=template(agent))


@pytest.mark.parametrize("public", [True, False])
def test_whether_a_public_endpoint_is_needed_is_what_was_said(public: bool) -> None:
    assert env(requires_public_model_endpoint=public).requires_public_model_endpoint is public
    assert env().requires_public_model_endpoint is True


def test_modal_gets_what_its_options_leave_out() -> None:
    given = EnvironmentConfig(type="modal", kwargs={"app_name": "mine"})
    made = env(trial=template(environment=given), sandbox_credentials=MODAL)
    assert made._trial.environment.kwargs == {
        "app_name": "mine",
        "sandbox_timeout_secs": 10800,
        "sandbox_idle_timeout_secs": 1800,
    }
    assert given.kwargs == {"app_name": "mine"}
    assert made._trial.agent.name == "oracle"  # type: ignore[union-attr]


async def test_a_dataset_configuration_is_copied(tmp_path: Path) -> None:
    dataset = DatasetConfig(path=tmp_path / "missing")
    made = env(dataset=dataset)
    dataset.path = tmp_path
    with pytest.raises(FileNotFoundError, match="missing"):
        await made.create_dataset("train", tmp_path / "data")


def test_options_of_the_model_are_diagnosed_also_in_a_bundled_agent() -> None:
    config = AgentConfig(import_path="mine:Mine", kwargs={"nested": {"temperature": None}, "max_tokens": 5})
    source = BundledAgentSource.from_files({"mine.py": b""})
    found = env(trial=template(BundledHarborAgent(config, source))).validation_diagnostics()
    assert [(one.severity, one.code, one.location) for one in found] == [
        ("error", "trainer_owned_model_control", "agent.kwargs.nested.temperature"),
        ("warning", "harness_output_cap", "agent.kwargs.max_tokens"),
    ]
    assert env().validation_diagnostics() == ()
