"""What importing the library loads, and what it exports."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import benchmax.envs
import benchmax.envs.base

HEAVY = ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "pydantic", "cloudpickle", "anyio", "harbor")


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    printed = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True).stdout
    return set(printed.split())


@pytest.mark.parametrize(
    "module",
    [
        "benchmax",
        "benchmax.auth",
        "benchmax.envs",
        "benchmax.envs.base.env",
        "benchmax.envs.environment",
        "benchmax.rag",
        "benchmax.sft",
    ],
)
def test_importing_loads_neither_openai_nor_an_http_library_nor_cloudpickle(module: str) -> None:
    assert not loaded_by(f"import {module}") & set(HEAVY)


def test_importing_envs_loads_nothing_but_a_handful_of_the_standard_library() -> None:
    expected = loaded_by("import asyncio, contextvars, dataclasses, hashlib, json, logging, pathlib, typing")
    extra = loaded_by("import benchmax.envs") - expected
    assert {name for name in extra if not name.startswith("benchmax")} <= {"__future__"}
    assert "benchmax.transport" not in extra


def test_constructing_an_environment_and_its_requests_loads_nothing_heavy() -> None:
    statement = """
from benchmax.envs import *
class Mine(BaseEnv):
    max_turns = 1
    async def create_dataset(self, split, base_dir, *, max_examples=None): return Dataset([])
Mine()
RolloutRequest("r", Example("e", {}), "m", "http://localhost", InjectedAuth("judge"))
"""
    assert not loaded_by(statement) & set(HEAVY)


def test_the_stock_loop_and_what_packs_are_loaded_when_they_are_first_asked_for() -> None:
    assert not {"benchmax.envs.base", "benchmax.bundle.dumping"} & loaded_by("import benchmax.envs, benchmax.bundle")
    assert "benchmax.envs.base.env" in loaded_by("import benchmax.envs\nassert benchmax.envs.base.BaseEnv")
    assert "benchmax.envs.base.env" in loaded_by("from benchmax.envs import *\nassert BaseEnv")
    assert "benchmax.bundle.dumping" in loaded_by("from benchmax.bundle import unregistered_local_refs")


@pytest.mark.parametrize("module", ["benchmax.envs", "benchmax.bundle"])
def test_what_is_loaded_late_is_listed_and_what_is_not_there_is_an_attribute_error(module: str) -> None:
    statement = f"import {module} as it\nassert {{'base', 'BaseEnv'}} <= {{*dir(it)}} or 'dump_bundle' in dir(it)"
    assert module in loaded_by(statement)
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec(f"from {module} import nonsense")


def test_a_request_auth_is_what_loads_the_http_library() -> None:
    assert loaded_by("from benchmax.auth import RequestModelAuth") & {"httpx", "httpx2"}


def test_the_exports_of_envs_are_these() -> None:
    names = (
        "BaseEnv BaseRollout Dataset DatasetSplit Environment Example InjectedAuth JsonRow JsonlDataset Message "
        "Messages ModelAuth RewardMap RolloutAttempt RolloutFailure RolloutOutcome RolloutRequest StaticBearerAuth "
        "Tool ValidationDiagnostic bind_model_auth canonical_example_id"
    )
    assert " ".join(benchmax.envs.__all__) == names


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (
            "benchmax.envs.shared_types",
            "DatasetSplit Example RewardMap RolloutAttempt RolloutFailure RolloutOutcome RolloutRequest "
            "ValidationDiagnostic",
        ),
        ("benchmax.envs.environment", "Environment settle_termination_reason"),
        ("benchmax.envs.dataset", "Dataset validate_max_examples"),
        ("benchmax.envs.identity", "canonical_example_id"),
        ("benchmax.envs.logging", "rollout_context group_context _CURRENT_ROLLOUT_ID _CURRENT_GROUP_RIDS"),
        ("benchmax.envs.base.dataset", "JsonlDataset JsonRow resolve_dataset_path"),
        ("benchmax.envs.base.env", "BaseEnv BaseRollout"),
        ("benchmax.envs.base.openai_types", "Message Messages Tool"),
    ],
)
def test_names_are_exported_and_defined_by_the_modules_that_pickles_refer_to(module: str, names: str) -> None:
    defining = importlib.import_module(module)
    assert set(names.split()) == set(defining.__all__)
    for name in names.split():
        value = getattr(defining, name)
        if isinstance(value, type) and value is not dict:
            assert (value.__module__, value.__qualname__) in {
                (module, name),
                ("builtins", "dict"),
                ("builtins", "list"),
            }
        if hasattr(benchmax.envs, name):
            assert getattr(benchmax.envs, name) is value


def test_base_reexports_its_three_modules_and_envs_leaves_out_resolve_dataset_path() -> None:
    names = "BaseEnv BaseRollout JsonRow JsonlDataset Message Messages Tool resolve_dataset_path"
    assert " ".join(benchmax.envs.base.__all__) == names
    assert not hasattr(benchmax.envs, "resolve_dataset_path")


def test_message_types_are_plain_dictionaries_at_run_time() -> None:
    from benchmax.envs import JsonRow, Message, Messages, Tool

    assert repr(Message) == repr(Tool) == repr(JsonRow) == "dict[str, typing.Any]"
    assert repr(Messages) == "list[dict[str, typing.Any]]"
