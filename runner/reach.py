"""What a worker may connect to, from what the caller says: URLs of models, of bindings, and single places beside them.

Comes in: a network mode, a mode of credentials and URLs. Goes out: endpoints for the sandbox, and a check of requests.
Refuses: places where the network mode leaves no use for them, and requests to a model that could not be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from runner.broker import AuthValue, Binding
from runner.broker.address import Address, read_address
from runner.errors import UsageError
from runner.limits import MAX_ENDPOINTS
from runner.sandbox.endpoints import Endpoint, read_endpoint
from runner.sandbox.policy import Credentials

GATEWAY: Final = Endpoint("benchmax-gateway", 80)
"""Where a worker finds the gateway in a network of its own."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a worker may connect to.

    Args:
        network: The network mode.
        endpoints: Everything there is, at `model-only`; of no meaning at other modes.
        models: Where requests may lead: to endpoints, or with the gateway, which connects in the worker's place, to
            what the caller named. `None` leaves that to the requests.
        intercepted: Origins at which the gateway answers in the place of whoever is there.
    """

    network: str
    endpoints: tuple[Endpoint, ...] = ()
    models: tuple[Endpoint, ...] | None = None
    intercepted: tuple[Address, ...] = ()

    def check(self, base_url: str) -> None:
        """Refuse a request to a model that could not be reached.

        Raises:
            ValueError: at `model-only`, its base URL leads to none of `models`; the text names what to add.
        """
        if self.network != "model-only":
            return
        try:
            endpoint = _of_url(base_url)
        except ValueError as error:
            raise ValueError(f"a request's base_url cannot be reached with network='model-only': {error}") from None
        if self.models is not None and endpoint not in self.models:
            origin = read_address(base_url).origin
            raise ValueError(
                f"a request's base_url leads to {origin}, which cannot be reached with network='model-only'; "
                f"if that is meant, pass endpoints=[{origin!r}]"
            )


def read_reach(
    network: str,
    *,
    credentials: Credentials = "headers",
    endpoints: Iterable[str] = (),
    allow: Iterable[str] = (),
    auth: Mapping[str, AuthValue] | None,
) -> Reach:
    """Put together what a worker may connect to.

    Args:
        network: The network mode.
        credentials: With `gateway`, a worker reaches that in the place of models, and of what bindings are for.
        endpoints: Base URLs of models.
        allow: Other places, each as `HOST:PORT`.
        auth: What the caller bound; the URLs of a `Binding` may be reached too.

    Raises:
        UsageError: one of them cannot be read, there are too many, the network mode leaves no use for them, or one
            place is to be two things.
    """
    for name, given in (("endpoints", endpoints), ("allow", allow)):
        if isinstance(given, str):
            raise UsageError(f"{name} must be a list, got one string.", hint=f"Write {name}=[{given!r}].")
    urls, places = tuple(endpoints), tuple(allow)
    if network != "model-only":
        for name, given in (("endpoints", urls), ("allow", places)):
            if given:
                why = "everything can be reached as it is" if network == "open" else "nothing is to be reached"
                raise UsageError(
                    f"{name} has no meaning with the network mode {network}: {why}.",
                    hint="Leave it out, or use the network mode model-only.",
                )
        if network == "none" and credentials == "gateway":
            raise UsageError(
                "credentials gateway has no meaning with the network mode none: the gateway could not be reached.",
                hint="Use the network mode model-only, which leaves the way to the gateway and no other.",
            )
        return Reach(network)
    models = [_read("endpoints", url, _of_url) for url in urls]
    bound: list[Endpoint] = []
    for name, value in (auth or {}).items():
        if isinstance(value, Binding):
            bound += [_read(f"auth[{name!r}]", url, _of_url) for url in value.urls]
    allowed = [_read("allow", place, read_endpoint) for place in places]
    if credentials == "headers":
        distinct = _distinct([*models, *bound, *allowed])
        return Reach(network, distinct, models=distinct)
    for place in allowed:
        if place in bound or place == GATEWAY:
            raise UsageError(
                f"allow: {place} is a place where the gateway answers itself, in exchange for session keys.",
                hint="Leave it out of allow, or use credentials='headers'.",
            )
    return Reach(
        network,
        _distinct([GATEWAY, *bound, *allowed]),
        models=tuple(models) or None,
        intercepted=_origins(auth or {}),
    )


def _distinct(places: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    distinct = tuple(dict.fromkeys(places))
    if len(distinct) > MAX_ENDPOINTS:
        raise UsageError(f"{len(distinct)} places are to be reached, and {MAX_ENDPOINTS} can be.", hint="Name fewer.")
    return distinct


def _origins(auth: Mapping[str, AuthValue]) -> tuple[Address, ...]:
    """List the origins of all bindings' URLs, each once."""
    found: dict[Endpoint, Address] = {}
    for value in auth.values():
        for address in value.addresses if isinstance(value, Binding) else ():
            origin = replace(address, path="")
            if found.setdefault(Endpoint(address.host, address.port), origin) != origin:
                raise UsageError(
                    f"auth: {address.host}:{address.port} is bound as http and as https.",
                    hint="A port speaks one of them: bind it under that.",
                )
    return tuple(found.values())


def _read(option: str, text: str, reader: Callable[[str], Endpoint]) -> Endpoint:
    try:
        return reader(text)
    except ValueError as error:
        # a password may stand before the host
        raise UsageError(f"{option}: {text.rpartition('@')[2]!r} cannot be reached: {error}.") from error


def _of_url(url: str) -> Endpoint:
    address = read_address(url)
    return Endpoint(address.host, address.port)
