"""A credential source, and where it may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from benchmax.auth import InjectedAuth, ModelAuth, ModelRequestContext
from runner.broker.address import Address, address_or_none, read_address
from runner.errors import HeadersRefusedError


@dataclass(frozen=True, slots=True)
class Binding:
    """A credential source and the URLs it may be used for.

    It is a `ModelAuth` itself, so that `bind_model_auth` takes one too, and a request as its own auth.

    Args:
        auth: Anything that satisfies `benchmax.auth.ModelAuth`. A plain, not asynchronous `headers_for_request` is
            called in a thread.
        urls: Base URLs whose requests are answered: same scheme, host and port, and a path at or below theirs.
            Without any, only the origins of the rollouts' own model endpoints are answered, since a judge's URL
            comes from the untrusted bundle.
        blocking: Whether an asynchronous `headers_for_request` blocks, so that it is to run in a thread, with an event
            loop of its own, and must not use anything of another loop.

    Raises:
        TypeError: `auth` is no `ModelAuth` or another `Binding`, or a URL no string.
        ValueError: a URL is no http or https base URL, or one that clients read differently.
    """

    auth: ModelAuth
    urls: Sequence[str] = ()
    blocking: bool = field(default=False, kw_only=True)
    addresses: tuple[Address, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        auth: object = self.auth
        if not isinstance(auth, ModelAuth) or isinstance(auth, Binding):
            raise TypeError(f"a Binding's auth must satisfy ModelAuth, got {type(self.auth).__name__}")
        object.__setattr__(self, "urls", (self.urls,) if isinstance(self.urls, str) else tuple(self.urls))
        object.__setattr__(self, "addresses", tuple(_bound(url) for url in self.urls))

    def covers(self, url: str, origins: Sequence[Address]) -> bool:
        """Whether a base URL is answered for.

        Args:
            url: Where the request goes.
            origins: Places whose origins are answered for when the binding names no URLs.
        """
        wanted = address_or_none(url)
        if wanted is None:
            return False
        if self.addresses:
            return any(address.covers(wanted) for address in self.addresses)
        return any(address.same_origin(wanted) for address in origins)

    async def headers_for_request(self, context: ModelRequestContext) -> Mapping[str, str]:
        """Ask the source, when it is bound in process.

        Raises:
            HeadersRefusedError: `urls` were given, and none of them covers the request's.
        """
        if self.addresses and not self.covers(context.base_url, ()):
            raise HeadersRefusedError(
                f"the binding does not cover {context.base_url}.", hint="Add the URL to its urls, if that is meant."
            )
        return await self.auth.headers_for_request(context)


AuthValue = ModelAuth | Binding


def as_binding(name: object, value: AuthValue) -> Binding:
    """Check one entry of `auth`, and make a binding of it.

    Raises:
        TypeError: the value is neither a `ModelAuth` nor a `Binding`.
        ValueError: the name is not a string or is blank.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"auth: names must be non-empty strings, got {name!r}")
    if isinstance(value, Binding):
        return value
    if not isinstance(value, ModelAuth):
        raise TypeError(f"auth[{name!r}] must be a ModelAuth or a Binding, got {type(value).__name__}")
    return Binding(value)


def named(name: str, bindings: Mapping[str, Binding]) -> Binding:
    """Find what is bound under a name.

    Raises:
        HeadersRefusedError: nothing is, or again a mere name; the words are those of `InjectedAuth`.
    """
    binding = bindings.get(name)
    if binding is None:
        raise HeadersRefusedError(f"No runtime model-auth provider is bound under {name!r}.")
    if isinstance(binding.auth, InjectedAuth):
        raise HeadersRefusedError(f"the provider bound as {name!r} cannot reference another InjectedAuth.")
    return binding


def _bound(url: object) -> Address:
    if not isinstance(url, str):
        raise TypeError(f"a Binding's urls must be strings, got {type(url).__name__}")
    try:
        address = read_address(url)
        if urlsplit(url).query or urlsplit(url).fragment:
            raise ValueError("it has a query or a fragment, which requests cannot be held to")
    except ValueError as error:
        # a password may stand before the host
        raise ValueError(f"{url.rpartition('@')[2]!r} cannot be bound: {error}") from None
    return address
