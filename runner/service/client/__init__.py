"""A typed client of a validation service, and what goes over the wire.

`ServiceClient` is for programs; `benchmax submit` is the same for people.
"""

from runner.errors import (
    ClientError,
    KeyRefusedError,
    NotFoundError,
    ServiceBusyError,
    ServiceFaultError,
    ServiceRefusedError,
    ServiceUnreachableError,
)
from runner.service.client.client import ServiceClient

__all__ = [
    "ClientError",
    "KeyRefusedError",
    "NotFoundError",
    "ServiceBusyError",
    "ServiceClient",
    "ServiceFaultError",
    "ServiceRefusedError",
    "ServiceUnreachableError",
]
