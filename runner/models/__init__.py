"""Models that need no key and no account: a scripted `mock`, a small real one, `local`, and one for embeddings.

This package says what a model's name means and how its server is started; it starts nothing itself, and importing it
loads no HTTP stack.
"""

from runner.models.choice import LOCAL_MODEL, ModelChoice, parse_model
from runner.models.command import (
    EMBEDDING_MODEL,
    EMBEDDING_REQUIREMENTS,
    LOCAL_FOLLOW_DEPENDENCIES,
    LOCAL_REQUIREMENTS,
    Announcement,
    ServerCommand,
    embedding_command,
    local_command,
    mock_command,
    read_announcement,
)
from runner.models.sample import SAMPLE_HEADER, SampleAuth

__all__ = [
    "EMBEDDING_MODEL",
    "EMBEDDING_REQUIREMENTS",
    "LOCAL_FOLLOW_DEPENDENCIES",
    "LOCAL_MODEL",
    "LOCAL_REQUIREMENTS",
    "SAMPLE_HEADER",
    "Announcement",
    "ModelChoice",
    "SampleAuth",
    "ServerCommand",
    "embedding_command",
    "local_command",
    "mock_command",
    "parse_model",
    "read_announcement",
]
