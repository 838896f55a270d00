"""Which models clients may ask, and what answers them: the service's own, and those of its bindings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmax.auth import ModelAuth, StaticBearerAuth
from runner.broker import Binding
from runner.models import ModelChoice
from runner.run import Anonymous
from runner.service.settings import Settings

DEFAULT_BINDINGS: Final = ("judge", "embedding", "tool_llm")
"""Names under which clients' environments ask models other than the rollout's."""


class UnknownModelError(Exception):
    """Raised when a client asks for a model that the service does not offer; its text names those that it does."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What answers a model that a client has named.

    Args:
        choice: What is to be started or asked.
        auth: Its credential source; `None` for one that needs none.
    """

    choice: ModelChoice
    auth: ModelAuth | None


def offered(settings: Settings) -> list[str]:
    """Return the names of the models that clients may ask, the default first."""
    names = [settings.model.choice().model]
    return [*dict.fromkeys([*names, *(name for binding in settings.bindings.values() for name in binding.models)])]


def asked(settings: Settings, name: str | None) -> Asked:
    """Return what answers a model of a name.

    Args:
        settings: The service's.
        name: As the client wrote it; `None` for the default. A mock or local model answers to any name that is not
            that of another.

    Raises:
        UnknownModelError: there is none.
    """
    own = settings.model.choice()
    if name is None or name == own.model:
        return Asked(own, settings.model.auth())
    for binding in settings.bindings.values():
        if name in binding.models and binding.base_url:
            choice = ModelChoice(kind="endpoint", model=name, base_url=binding.base_url)
            return Asked(choice, binding.auth())
    if own.kind != "endpoint":
        return Asked(own, settings.model.auth())
    raise UnknownModelError(f"there is no model {name[:100]!r} here; there are {', '.join(offered(settings))}")


def bindings(settings: Settings, token: str) -> dict[str, Binding]:
    """Return what environments' `InjectedAuth` names are bound to.

    Args:
        settings: The service's. Names for which they say nothing lead to its own models, at its own address.
        token: What is shown there.
    """
    own = Binding(StaticBearerAuth(token), urls=[f"{settings.public_url}/v1"])
    configured = {
        name: Binding(binding.auth() or Anonymous(), urls=[binding.base_url])
        for name, binding in settings.bindings.items()
        if binding.base_url
    }
    return {**dict.fromkeys(DEFAULT_BINDINGS, own), **configured}
