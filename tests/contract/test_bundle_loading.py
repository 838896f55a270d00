"""Loading: order of checks, what a payload must be, and what importing the module does not bring along."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from benchmax.bundle import (
    Bundle,
    BundleMetadata,
    BundlingError,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    dump_bundle,
    load_bundle,
)
from benchmax.envs import Dataset, Environment, RolloutAttempt, RolloutRequest
from tests.naming import name_of

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


class Env(Environment[object, RolloutAttempt]):
    def __init__(self, *, scale: float = 1.0, fail: bool = False) -> None:
        if fail:
            raise LookupError("no such scale")
        self.scale = scale

    async def create_dataset(self, split: str, base_dir: Path, *, max_examples: int | None = None) -> Dataset[object]:
        return Dataset([])

    async def run_rollout(self, request: RolloutRequest[object]) -> RolloutAttempt:
        raise NotImplementedError


def holding(pickled: bytes, *, python: str = RUNNING, benchmax: str = "0.2.0") -> Bundle:
    return Bundle(pickled, BundleMetadata((), python, benchmax, None))


def payload(value: object) -> Bundle:
    return holding(pickle.dumps(value))


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (sys.exit, ("from the pickle",))


def test_class_is_called_with_its_recorded_arguments(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="benchmax.bundle")
    env = load_bundle(payload((Env, {"scale": 2.0})))
    assert isinstance(env, Env)
    assert env.scale == 2.0
    assert any(line.startswith("[bundle] instantiating") for line in caplog.messages)


def test_class_and_arguments_come_back_without_instantiating(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="benchmax.bundle")
    assert load_bundle(payload((Env, {"fail": True})), instantiate=False) == (Env, {"fail": True})
    assert not caplog.messages


def test_constructor_error_is_not_wrapped() -> None:
    with pytest.raises(LookupError, match="no such scale"):
        load_bundle(payload((Env, {"fail": True})))
    with pytest.raises(TypeError, match="unknown"):
        load_bundle(payload((Env, {"unknown": 1})))


@pytest.mark.parametrize(
    ("python", "benchmax", "error"),
    [("2.7", "0.2.0", IncompatiblePythonError), (RUNNING, "9.9", IncompatibleBenchmaxError)],
)
def test_incompatibility_is_reported_before_the_pickle_is_touched(
    python: str, benchmax: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        load_bundle(holding(b"broken", python=python, benchmax=benchmax))


@pytest.mark.parametrize(
    "pickled",
    [
        b"",
        b"broken",
        pickle.dumps((Env, {}))[:-10],
        b"cno_such_module\nThing\n.",
        b"cbuiltins\nno_such_name\n.",
        pickle.dumps(Bomb()),
    ],
    ids=["empty", "garbage", "cut", "missing module", "missing name", "exits"],
)
def test_pickle_that_does_not_load_is_a_bundling_error(pickled: bytes) -> None:
    with pytest.raises(BundlingError, match=r"Cannot unpickle") as caught:
        load_bundle(holding(pickled))
    assert caught.value.__cause__ is not None


def test_missing_module_is_named_with_the_remedy() -> None:
    with pytest.raises(BundlingError, match=r"no_such_module.*pip_dependencies.*local_modules"):
        load_bundle(holding(b"cno_such_module\nThing\n."))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [Env, {}],
        (Env,),
        (Env, {}, {}),
        (Env(), {}),
        (dict, {}),
        ("Env", {}),
        (Env, None),
        (Env, [("scale", 1)]),
    ],
    ids=name_of,
)
@pytest.mark.parametrize("instantiate", [True, False])
def test_payload_of_another_shape_is_a_bundling_error(value: object, instantiate: bool) -> None:
    with pytest.raises(BundlingError, match="must hold"):
        load_bundle(payload(value), instantiate=instantiate)  # type: ignore[call-overload]


def test_only_bundles_are_loaded() -> None:
    with pytest.raises(TypeError, match="Bundle"):
        load_bundle(pickle.dumps((Env, {})))  # type: ignore[call-overload]


def test_what_was_dumped_here_loads_here() -> None:
    bundle = dump_bundle(Env, constructor_args={"scale": 3.0})
    assert load_bundle(bundle).scale == 3.0  # type: ignore[attr-defined]


def test_importing_the_module_loads_nothing_that_unpickles_or_talks() -> None:
    script = (
        "import sys, benchmax.bundle as b; m = b.BundleMetadata((), '3.12', '0.2.0', None);"
        "b.bundle_digest(b.Bundle(b'', m)); b.BundleMetadata.from_json_bytes(m.to_json_bytes());"
        "heavy = {'cloudpickle', 'openai', 'httpx', 'httpx2', 'benchmax.envs', 'benchmax.auth', 'benchmax.rewards'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
