"""What a worker may connect to, from what the caller says: URLs of models, of bindings, and single places beside them.

Comes in: a network mode and URLs. Goes out: endpoints for the sandbox, and a check of requests. Refuses: places where
the network mode leaves no use for them, and requests to a model that the worker could not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from runner.broker import AuthValue, Binding
from runner.broker.address import read_address
from runner.errors import UsageError
from runner.limits import MAX_ENDPOINTS
from runner.sandbox.endpoints import Endpoint, read_endpoint


@dataclass(frozen=True, slots=True)
class Reach:
    """What a worker may connect to.

    Args:
        network: The network mode.
        endpoints: Everything there is, at `model-only`; of no meaning at other modes.
    """

    network: str
    endpoints: tuple[Endpoint, ...] = ()

    def check(self, base_url: str) -> None:
        """Refuse a request to a model that its worker could not connect to.

        Raises:
            ValueError: at `model-only`, its base URL leads to none of the endpoints; the text names what to add.
        """
        if self.network != "model-only":
            return
        try:
            endpoint = _of_url(base_url)
        except ValueError as error:
            raise ValueError(f"a request's base_url cannot be reached with network='model-only': {error}") from None
        if endpoint not in self.endpoints:
            origin = read_address(base_url).origin
            raise ValueError(
                f"a request's base_url leads to {origin}, which its worker cannot reach with network='model-only'; "
                f"if that is meant, pass endpoints=[{origin!r}]"
            )


def read_reach(
    network: str, *, endpoints: Iterable[str] = (), allow: Iterable[str] = (), auth: Mapping[str, AuthValue] | None
) -> Reach:
    """Put together what a worker may connect to.

    Args:
        network: The network mode.
        endpoints: Base URLs of models.
        allow: Other places, each as `HOST:PORT`.
        auth: What the caller bound; the URLs of a `Binding` may be reached too.

    Raises:
        UsageError: one of them cannot be read, there are too many, or the network mode leaves no use for them.
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
        return Reach(network)
    found = [_read("endpoints", url, _of_url) for url in urls]
    for name, value in (auth or {}).items():
        if isinstance(value, Binding):
            found += [_read(f"auth[{name!r}]", url, _of_url) for url in value.urls]
    found += [_read("allow", place, read_endpoint) for place in places]
    distinct = tuple(dict.fromkeys(found))
    if len(distinct) > MAX_ENDPOINTS:
        raise UsageError(f"{len(distinct)} places are to be reached, and {MAX_ENDPOINTS} can be.", hint="Name fewer.")
    return Reach(network, distinct)


def _read(option: str, text: str, reader: Callable[[str], Endpoint]) -> Endpoint:
    try:
        return reader(text)
    except ValueError as error:
        # a password may stand before the host
        raise UsageError(f"{option}: {text.rpartition('@')[2]!r} cannot be reached: {error}.") from error


def _of_url(url: str) -> Endpoint:
    address = read_address(url)
    return Endpoint(address.host, address.port)
