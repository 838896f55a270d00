"""Every number the runner holds itself and a bundle to, with its unit and its reason.

`Limits` are the ones a caller may change; the constants below it are fixed properties of the protocol and of the
process handling. Times are seconds, sizes are bytes. This file is shipped into the worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a bundle may use. Each deadline is counted on its own and owned by the caller's process.

    Raises:
        ValueError: a value is not a positive, finite number, or a size or count not a whole one.
    """

    install_s: float = 1800.0
    """From the first installer process to the finished venv; a cold torch takes minutes, a hang takes for ever."""

    install_silence_s: float = 300.0
    """An installer that shows no progress for this long is taken to hang."""

    startup_s: float = 120.0
    """From starting the process to the ready frame: imports and the environment's constructor."""

    dataset_s: float = 600.0
    """One `create_dataset` call."""

    rollout_s: float = 600.0
    """One rollout, from when its group was sent."""

    scoring_s: float = 300.0
    """One `compute_group_rewards`, from when the last rollout of its group ended."""

    cancel_grace_s: float = 5.0
    """How long code that was asked to stop may take before its worker is killed."""

    shutdown_s: float = 5.0
    """How long `aclose` of the environment may take before the worker is killed."""

    output_bytes: int = 256 * KIB
    """Kept of each of a worker's standard streams: half from its beginning, half from its end."""

    rollout_log_bytes: int = 128 * KIB
    """Kept of what one rollout printed and logged."""

    transcript_bytes: int = 4 * MIB
    """Kept of one rollout's transcript, as JSON."""

    restarts: int = 3
    """Workers that may end or fail to start in a row before the environment gives up; a whole group starts anew."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"limit {field.name} must be a number, got {value!r}")
            if field.type == "int" and not isinstance(value, int):
                raise ValueError(f"limit {field.name} must be a whole number, got {value!r}")
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name != "restarts"):
                raise ValueError(f"limit {field.name} must be positive and finite, got {value!r}")


MAX_FRAME_BYTES: Final = 64 * MIB
"""One message on a channel. Larger ones are refused before any of their bytes are read."""

MAX_TEXT_CHARS: Final = 16 * KIB
"""An error text or one log line; a message beyond this helps nobody."""

MAX_TRACEBACK_CHARS: Final = 64 * KIB
"""A formatted traceback: some hundred frames."""

MAX_ID_CHARS: Final = 4 * KIB
"""Rollout ids, example ids, names and reasons."""

MAX_URL_CHARS: Final = 8 * KIB
"""A model's base URL; browsers and servers stop at about the same length."""

MAX_REWARD_BYTES: Final = 1 * MIB
"""One rollout's reward map as JSON: some twenty thousand components."""

MAX_GROUP_ROLLOUTS: Final = 100_000
"""Rollouts in one group message."""

DATASET_PART_IDS: Final = 10_000
"""Example ids per dataset message, so that a large dataset does not need one huge frame."""

MAX_LOADED_MODULES: Final = 20_000
"""Modules in one list of what a worker loaded; a worker with several large frameworks has some thousand."""

MAX_LOADED_MESSAGES: Final = 2
"""Lists of loaded modules from one worker: after its first call with rollouts, and at its end."""

MAX_MODULE_CHARS: Final = 512
"""A module's path relative to its venv; with the number above, the list always fits a frame."""

TERM_GRACE_S: Final = 2.0
"""Between SIGTERM and SIGKILL when a process tree is ended: enough to flush, too short to be annoying."""

REAP_S: Final = 10.0
"""How long a killed tree may take to disappear before that is reported as an error of the host."""
