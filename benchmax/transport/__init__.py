"""How the library talks to model servers: OpenAI clients of their own over shared connections. Private.

Importing this package loads neither openai nor its HTTP library; using it does.
"""

from benchmax.transport.async_pool import aclose_transports
from benchmax.transport.clients import (
    async_openai_client,
    openai_client,
    request_model_auth_class,
    rollout_client,
)

__all__ = [
    "aclose_transports",
    "async_openai_client",
    "openai_client",
    "request_model_auth_class",
    "rollout_client",
]
