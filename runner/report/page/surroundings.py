"""What something ran in, as far as it got: bundle, venv, sandbox, header audit, output outside of rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from runner.report.page.blocks import disclosure, listing, section, table, terms
from runner.report.page.figures import counted
from runner.report.page.markup import Markup, element, fragment
from runner.report.value import BundleFacts, DatasetFacts, HeaderFacts, ModelFacts, SandboxFacts, VenvFacts

NOT_REACHED: Final = "did not get that far"


class Setting(Protocol):
    """What is known of where something ran; `None` is what it did not get to."""

    @property
    def bundle(self) -> BundleFacts | None:
        """Which bundle."""

    @property
    def venv(self) -> VenvFacts | None:
        """Which packages."""

    @property
    def sandbox(self) -> SandboxFacts | None:
        """How it was confined."""

    @property
    def model(self) -> ModelFacts | None:
        """Which model was asked."""

    @property
    def dataset(self) -> DatasetFacts | None:
        """Which examples there were."""


def surroundings(setting: Setting, headers: HeaderFacts | None, output: Mapping[str, str]) -> Markup:
    """Show what it ran in.

    Args:
        setting: Where.
        headers: The header audit; `None` where there is none.
        output: What was printed and logged outside of rollouts, by the name of who did.
    """
    said = [
        disclosure(f"Output of {name} outside of rollouts", element("pre", text, tabindex=0))
        for name, text in output.items()
        if text
    ]
    return section(
        "surroundings",
        "Run",
        terms([*_facts(setting)]),
        None if setting.sandbox is None else _sandbox(setting.sandbox),
        None if headers is None else [element("h3", "Header audit"), _audit(headers)],
        None if setting.venv is None else _packages(setting.venv),
        [element("h3", "Output"), said] if said else None,
    )


def _facts(setting: Setting) -> Iterator[tuple[str, str]]:
    bundle, venv, model, dataset = setting.bundle, setting.venv, setting.model, setting.dataset
    if bundle is None:
        yield "bundle", "not known: its metadata could not be read"
    else:
        yield "environment", bundle.environment or "not known"
        yield "bundle", bundle.digest
        yield "made for", f"Python {bundle.python_version}, benchmax {bundle.benchmax_version}"
        yield "requires", ", ".join(bundle.pip_dependencies) or "nothing beyond benchmax"
    yield "model", NOT_REACHED if model is None else f"{model.name} ({model.kind}) at {model.base_url}"
    yield (
        "dataset",
        NOT_REACHED
        if dataset is None
        else f"{dataset.split} of {dataset.path}, {counted(dataset.examples, 'example')}",
    )
    yield "venv", NOT_REACHED if venv is None else f"{venv.path} ({venv.python}; {venv.installer}; key {venv.key})"
    if setting.sandbox is None:
        yield "sandbox", NOT_REACHED


def _sandbox(sandbox: SandboxFacts) -> Markup:
    facts = [
        ("level", sandbox.level),
        ("network", sandbox.network),
        ("data", sandbox.data or "not known"),
        ("user id", str(sandbox.uid)),
        ("hash seed", sandbox.hash_seed),
        ("credentials", sandbox.credentials),
        ("secrets handed in", ", ".join(sandbox.secrets) or "none"),
    ]
    endpoints = [
        (place.endpoint, f"{place.connections:,}", f"{place.failed:,}", place.reason) for place in sandbox.endpoints
    ]
    return fragment(
        element("h3", "Sandbox"),
        terms(facts),
        listing("Mechanisms in force", sandbox.mechanisms),
        listing("Not limited", sandbox.not_limited),
        table("Places that could be reached", ("place", "connections", "failed", "why"), endpoints, numbers=(1, 2))
        if endpoints
        else None,
    )


def _packages(venv: VenvFacts) -> Markup:
    packages = [*venv.packages.items()]
    return fragment(
        element("h3", "Packages"),
        disclosure(
            f"{counted(len(packages), 'installed package')}",
            element(
                "ul",
                [element("li", name, " ", element("span", version)) for name, version in packages],
                class_="names",
            ),
        ),
    )


def _audit(headers: HeaderFacts) -> Markup:
    own = "rollout’s own"
    counts = [
        (found.binding if found.binding is not None else own, found.origin, found.verdict, f"{found.count:,}")
        for found in headers.counts
    ]
    refused = [
        (
            one.verdict,
            one.binding if one.binding is not None else own,
            one.rollout_id,
            one.base_url,
            one.model,
            one.reason,
        )
        for one in headers.refused
    ]
    told = f"{counted(headers.answered, 'request was', 'requests were')} answered, {headers.not_answered:,} not."
    heads = ("verdict", "binding", "rollout", "URL", "model", "reason")
    return fragment(
        element("p", told),
        table("Header requests", ("binding", "place", "verdict", "requests"), counts, numbers=(3,)) if counts else None,
        table("The newest that got no headers", heads, refused) if refused else None,
    )
