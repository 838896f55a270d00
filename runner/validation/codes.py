"""Every check there is, in the order in which they are shown, and every kind of finding with its check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmax.bundle.findings.finding import Severity

CHECKS: Final[Mapping[str, str]] = {
    "artifact": "its files can be read, and loading its pickle does what pickles of environments do",
    "secrets": "nothing in it looks like a secret",
    "packages": "what it declares can be installed",
    "load": "it loads and constructs in a fresh interpreter, with the declared packages alone",
    "imports": "what its code imports is there",
    "diagnostics": "it finds nothing wrong with its own configuration",
    "dataset": "two workers make the same examples in the same order",
    "siblings": "rollouts come to an end that is scored, without errors",
    "contract": "what it asks of the model can be trained on",
    "rewards": "rewards are there, and differ",
    "replay": "the same answers of the model give the same requests and the same rewards",
    "interleaving": "rollouts score at the same time as they do alone",
    "model error 500": "a model that fails costs its rollout the score, and nobody else anything",
    "model error 429": "so does a model that is busy",
    "context exceeded": "a conversation that has no room left ends, and is scored if its reason is",
    "tool calls": "calls of tools that make no sense are answered",
    "judge outage": "a judge that fails gives no rewards",
    "close": "it can be closed",
}
"""Checks by name, each with what is so when it passes."""

ESSENTIAL: Final = ("load", "dataset", "siblings")
"""Without these there is no verdict, unless something else is wrong."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding: where it comes from, its severity, and what it means."""

    check: str
    severity: Severity
    meaning: str


def _error(check: str, meaning: str) -> Kind:
    return Kind(check, "error", meaning)


def _warning(check: str, meaning: str) -> Kind:
    return Kind(check, "warning", meaning)


KINDS: Final[Mapping[str, Kind]] = {
    "artifact": _error("artifact", "its metadata cannot be read, or a file is empty"),
    "broken-pickle": _error("artifact", "its pickle cannot be loaded, whatever is installed"),
    "dangerous-pickle": _error("artifact", "loading it does what no packing of an environment asks for"),
    "secret-captured": _error("secrets", "something in it looks like a secret"),
    "environment-captured": _error("secrets", "it holds the environment variables of whoever packed it"),
    "requirement": _error("packages", "its requirements cannot be met"),
    "build": _error("packages", "a package among them cannot be built"),
    "undeclared-dependency": _error("imports", "it imports a module that nothing it declares brings"),
    "delayed-import": _warning("imports", "the same, in a function that was not reached"),
    "does-not-load": _error("load", "it cannot be loaded, or its constructor raises"),
    "validation-diagnostic": _error("diagnostics", "it finds an error in its own configuration"),
    "validation-warning": _warning("diagnostics", "it finds something doubtful in its own configuration"),
    "dataset-raises": _error("dataset", "`create_dataset` raises, hangs or ends its worker"),
    "dataset-empty": _error("dataset", "the split has no example"),
    "dataset-differs": _error("dataset", "two workers make other examples, or in another order"),
    "dataset-unbounded": _warning("dataset", "`create_dataset` gives more examples than it was asked for"),
    "example-ids-repeat": _warning("dataset", "two examples have the same id"),
    "group-raises": _error("siblings", "`run_group` raises: no sibling has an outcome"),
    "worker-died": _error("siblings", "a rollout ends its worker process, or breaks the protocol"),
    "rollout-timeout": _error("siblings", "a rollout or the scoring of a group does not end in time"),
    "rollout-error": _error("siblings", "an outcome has an error"),
    "not-scored": _error("siblings", "a rollout ends for a reason that the environment does not score"),
    "no-model-call": _error("siblings", "a rollout ends without having asked the model"),
    "single-call": _warning("siblings", "no rollout asks the model more than once"),
    "reason-of-its-own": _warning("siblings", "a rollout ends for a reason that only this environment scores"),
    "unsteady": _warning("siblings", "a rollout fails, and does not when it is repeated"),
    "trainer_owned_model_control": _error("contract", "it sets how answers are sampled"),
    "unsupported_model_control": _error("contract", "it asks for what an answer in training does not have"),
    "harness_output_cap": _warning("contract", "it caps the length of answers"),
    "rewritten_history": _error("contract", "it changes or drops earlier messages"),
    "changed_tools": _error("contract", "it changes the list of tools"),
    "overlapping_generations": _error("contract", "it asks before it has an answer"),
    "reward-invalid": _error("rewards", "a reward is no finite number, or has no name"),
    "no-rewards": _warning("rewards", "rollouts end well and have no reward"),
    "constant-reward": _warning("rewards", "all rollouts have the same rewards"),
    "reward-differs": _error("replay", "the same conversation has another reward or another end"),
    "request-differs": _warning("replay", "the same answers of the model lead to other requests"),
    "interference": _error("interleaving", "a rollout ends otherwise when others run at the same time or before it"),
    "failure-raises": _error("model error 500", "a failure raises out of `run_group`, so that siblings are lost"),
    "failure-scored": _error("model error 500", "a failure is given a reward, as if it were an answer"),
    "failure-hangs": _error("model error 500", "a failure keeps the rollout from ending"),
    "failure-spreads": _error("model error 500", "a failure of one rollout changes the outcome of its sibling"),
    "failure-kills": _error("model error 500", "a failure ends the worker process"),
    "budget-stop-unscored": _error("context exceeded", "scoring fails for a conversation that was cut short"),
    "context-not-told": _warning("context exceeded", "a used-up context ends in another reason"),
    "tool-call-ends-rollout": _warning("tool calls", "a call of a tool that makes no sense ends the rollout"),
    "close-raises": _error("close", "`aclose` raises or does not end"),
}  # fmt: skip
"""Kinds of finding by code. Those of a failure come from whichever failure shows them first."""
