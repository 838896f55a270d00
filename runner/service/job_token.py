"""Tokens with which what runs in a job asks the service's own models: good as long as it runs, and for nothing else.

An environment's judge is often at the very address at which its client has reached the service. The executor binds such
names to a token of the job, so that nobody's key is in the executor.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

SIGNED_WITH: Final = "job-token-key"
"""Name of what tokens are signed with."""

PREFIX: Final = "bmj_"


def issue(secret: bytes, job_id: str) -> str:
    """Return the token of a job.

    Args:
        secret: What it is signed with.
        job_id: The job.
    """
    return f"{PREFIX}{job_id}.{_signature(secret, job_id)}"


def job_of(secret: bytes, token: str) -> str | None:
    """Return the job that a token is for; `None` for one that was not issued here.

    Args:
        secret: What it would be signed with.
        token: What was shown.
    """
    job_id, _, signature = token.removeprefix(PREFIX).partition(".")
    wanted = _signature(secret, job_id).encode()
    good = token.startswith(PREFIX) and hmac.compare_digest(wanted, signature.encode("utf-8", "surrogatepass"))
    return job_id if good else None


def _signature(secret: bytes, job_id: str) -> str:
    return hmac.new(secret, f"job\n{job_id}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
