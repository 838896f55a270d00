"""Which hosts the installers of one provisioning may ask: those of the indexes, of their files, and of addresses given.

Comes in: options, indexes, requirements and a lock. Goes out: hosts with ports, in two kinds. What the caller names may
be anywhere. What only a bundle names, by a requirement's address or in its lock, must be a host of the internet: it is
no way to the services of this machine and of its network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from packaging.requirements import Requirement

from runner.provision.index import Indexes
from runner.provision.options import ProvisionOptions

FILE_HOSTS: Final = {"pypi.org": "files.pythonhosted.org", "test.pypi.org": "test-files.pythonhosted.org"}
"""Public indexes whose files are on a host of their own."""

PORTS: Final = {"http": 80, "https": 443}

Host = tuple[str, int]
"""Name or address in lower case, and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Hosts that may be asked.

    Args:
        named: By the caller, or by an index of the caller's.
        declared: By the bundle alone.
    """

    named: frozenset[Host]
    declared: frozenset[Host]

    @classmethod
    def of(
        cls,
        requirements: Iterable[str],
        *,
        options: ProvisionOptions,
        indexes: Indexes,
        lock: Mapping[str, Any] | None,
    ) -> Hosts:
        """Collect the hosts of one provisioning.

        Args:
            requirements: PEP 508 requirements.
            options: How packages are looked for.
            indexes: Where packages come from.
            lock: The content of the lock that is installed from.
        """
        pages = [*(index.public_url for index in indexes.all), *options.find_links]
        named = {host for page in pages if (host := host_of(page)) is not None}
        named |= {(FILE_HOSTS[name], PORTS["https"]) for name, _ in [*named] if name in FILE_HOSTS}
        named |= {host for text in options.file_hosts for host in _read(text)}
        addresses = [*(Requirement(line).url or "" for line in requirements), *_addresses(lock or {})]
        declared = {host for address in addresses if (host := host_of(address)) is not None}
        return cls(named=frozenset(named), declared=frozenset(declared - named))

    def allow(self, host: Host) -> bool:
        """Whether a host may be asked."""
        return host in self.named or host in self.declared


def host_of(address: str) -> Host | None:
    """Return the host of a web address, with or without `git+` before it; `None` for any other."""
    parts = urlsplit(address)
    scheme = parts.scheme.lower().rpartition("+")[2]
    try:
        port = parts.port or PORTS.get(scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and scheme in PORTS and port else None


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_global


def _read(text: str) -> Iterator[Host]:
    name, colon, port = text.rpartition(":")
    if colon and port.isdigit():
        yield name.removeprefix("[").removesuffix("]"), int(port)
    else:
        yield from ((text.removeprefix("[").removesuffix("]"), port) for port in PORTS.values())


def _addresses(lock: Mapping[str, Any]) -> Iterator[str]:
    for entry in lock.get("packages", ()):
        places = (*entry.get("wheels", ()), *(entry[key] for key in ("sdist", "archive", "vcs") if key in entry))
        yield from (str(place["url"]) for place in places if isinstance(place, Mapping) and "url" in place)
