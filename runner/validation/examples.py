"""Whether a dataset is the same in every worker: the same examples, in the same order, as many as are asked for."""

from __future__ import annotations

import asyncio
from typing import Final

from runner.errors import RemoteError, RunnerError
from runner.isolated import IsolatedEnvironment
from runner.text import one_line
from runner.validation.bindings import Bindings
from runner.validation.imports import missing_module, undeclared
from runner.validation.ledger import Ledger
from runner.validation.passes import Stage
from runner.validation.plan import ValidationPlan
from runner.validation.siblings import quoted
from runner.validation.statics import StoppedError

EXAMPLES: Final = 32
"""Examples that each worker is asked for."""

_STEADY: Final = (
    "Seed what is random, sort what comes from a set or from the disk, and make ids of what an example holds: "
    "canonical_example_id."
)


async def check_dataset(stages: tuple[Stage, Stage], plan: ValidationPlan, ledger: Ledger) -> None:
    """Make the dataset in both workers, and look at it; stages have their examples afterwards.

    Raises:
        StoppedError: it is of no use, or cannot be had here.
        RunnerError: the caller's or the host's fault.
    """
    blocked = ""
    with ledger.checking("dataset"):
        results = await asyncio.gather(*(_make(stage, plan) for stage in stages), return_exceptions=True)
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        if failure is not None:
            blocked = _failed(failure, stages[0].env, plan, ledger)
        if blocked:
            ledger.skip("dataset", blocked)
        elif failure is None:
            _compare(stages, ledger, plan)
    if blocked or ledger.failed("dataset"):
        raise StoppedError(blocked or "its dataset is of no use")


async def _make(stage: Stage, plan: ValidationPlan) -> None:
    """Make the dataset twice: some examples, and one, which has to be the first of them."""
    some = await stage.env.create_dataset(plan.split, plan.data, max_examples=EXAMPLES)
    one = await stage.env.create_dataset(plan.split, plan.data, max_examples=1)
    stage.examples = tuple(some)
    stage.first = tuple(one)


def _failed(error: BaseException, env: IsolatedEnvironment, plan: ValidationPlan, ledger: Ledger) -> str:
    """Take down why there is no dataset; return why that is nobody's fault here, if so."""
    if not isinstance(error, RunnerError) or error.fault != "bundle":
        raise error
    module = missing_module(error) if isinstance(error, RemoteError) else ""
    trouble = Bindings(env, plan.auth).trouble(error.message)
    if trouble:
        return trouble
    if module:
        ledger.find(undeclared(module, what="create_dataset", when="when it makes its dataset"), check="dataset")
        return ""
    fix = error.hint or "Mend create_dataset."
    if isinstance(error, RemoteError) and error.remote_type in ("FileNotFoundError", "NotADirectoryError"):
        fix = f"It was given {plan.data.absolute()}: check --data and --split; paths must begin with base_dir."
    ledger.add("dataset-raises", "create_dataset", quoted(error), fix)
    return ""


def _compare(stages: tuple[Stage, Stage], ledger: Ledger, plan: ValidationPlan) -> None:
    first, second = ([example.id for example in stage.examples] for stage in stages)
    if not first and not second:
        ledger.add(
            "dataset-empty",
            "create_dataset",
            f"the {plan.split} split has no example",
            f"It was given {plan.data.absolute()}: check --data and --split.",
        )
        return
    if first != second:
        place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), -1)
        how = f"example {place} is another one" if place >= 0 else f"{len(first)} examples, and {len(second)}"
        ledger.add("dataset-differs", "create_dataset", f"two workers made different datasets: {how}", _STEADY)
        return
    if len(first) > EXAMPLES or len(stages[0].first) > 1:
        asked, made = (EXAMPLES, len(first)) if len(first) > EXAMPLES else (1, len(stages[0].first))
        ledger.add(
            "dataset-unbounded",
            "create_dataset",
            f"asked for {asked} at most, it made {made} examples",
            "Stop at max_examples: the whole dataset may be large.",
        )
    alone = [example.id for example in stages[0].first][:1]
    if alone != first[:1]:
        ledger.add(
            "dataset-differs", "create_dataset", "its first example depends on how many examples are asked for", _STEADY
        )
    if len({*first}) < len(first):
        twice = next(name for i, name in enumerate(first) if name in first[:i])
        ledger.add(
            "example-ids-repeat",
            "create_dataset",
            f"two of its first {len(first)} examples have the id {one_line(twice, 80)}",
            "Make ids of what tells examples apart: canonical_example_id.",
        )
