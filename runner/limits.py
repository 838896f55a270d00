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
GIB: Final = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a bundle may use. Each deadline is counted on its own and owned by the caller's process.

    Raises:
        ValueError: a value is not a positive, finite number, a size or count not a whole one, `transcript_bytes`
            more than fits a message, or `open_files` fewer than a worker starts with.
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

    stall_s: float = 2.0
    """A worker's event loop that has not turned for this long is reported, with the code that holds it up."""

    memory_bytes: int | None = None
    """Private memory of each process of a worker, and with control groups all memory of them together; see the docs."""

    processes: int | None = 1024
    """Processes and threads of a worker: room for many data loaders, few enough for the machine to stay usable."""

    open_files: int | None = 16_384
    """Descriptors of each process of a worker; a server with thousands of connections stays below."""

    file_bytes: int | None = 16 * GIB
    """One file that a worker writes; weights of models are cut into smaller ones."""

    disk_bytes: int | None = 32 * GIB
    """What a worker's own folders hold on disk, copies of data included, at 16 KiB or more for each file or folder."""

    data_bytes: int = 4 * GIB
    """Data that is copied for one sandboxed worker, where it has no overlay: half a minute on a slow disk."""

    data_files: int = 100_000
    """The same in files and folders, a thousand of which take a tenth of a second."""

    cpus: float | None = None
    """Processors' worth of time of a worker, where control groups can be used; by default its deadlines bound it."""

    trial_sandboxes: int = 16
    """Sandboxes for trials of one worker at once; its rollouts beyond that wait for one in the order they asked."""

    trial_s: float = 14_400.0
    """How long one of them may live: agents and verifiers have shorter times of their own."""

    trial_memory_bytes: int | None = 8 * GIB
    """Like `memory_bytes`, of each of them; a compiler and the tests of a large project stay below."""

    trial_disk_bytes: int | None = 16 * GIB
    """Like `disk_bytes`, of each of them: all that is written in it."""

    trial_processes: int | None = 1024
    """Like `processes`, of each of them, all of its users together."""

    headers_s: float = 60.0
    """One answer of a credential source, the wait for its turn included; a sign-in that takes longer is stuck."""

    headers_per_rollout: int = 10_000
    """Header requests of one rollout; one every 60 ms of its default time, and a model takes longer than that."""

    headers_per_s: int = 10_000
    """Header requests of one worker per second in the long run; several times what an HTTP client in it could use."""

    output_bytes: int = 256 * KIB
    """Kept of each of a worker's standard streams: half from its beginning, half from its end."""

    rollout_log_bytes: int = 128 * KIB
    """Kept of what one rollout printed and logged, in characters: half from its beginning, half from its end."""

    transcript_bytes: int = 4 * MIB
    """Kept of one rollout's transcript, as JSON; at most 60 MiB, since it travels in one message."""

    dataset_examples: int = 1_000_000
    """Examples of one dataset; the caller holds some 250 bytes for each, beside its id."""

    dataset_bytes: int = 256 * MIB
    """All ids of one dataset as UTF-8."""

    in_flight_bytes: int = 512 * MIB
    """What the caller holds for one worker's rollouts in flight: transcripts, logs, rewards; and of calls to models."""

    report_bytes: int = 1024 * MIB
    """What a run keeps of transcripts and logs for its report; later ones are left out of it, and counted."""

    context_tokens: int | None = None
    """Tokens of one rollout's conversation, through the gateway; by default the model's own context bounds it."""

    model_calls_per_rollout: int = 10_000
    """Model calls of one rollout through the gateway: far more than a conversation has turns."""

    model_tokens_per_rollout: int | None = None
    """Tokens of all model calls of one rollout through the gateway together; by default its calls bound them."""

    request_bytes: int = 16 * MIB
    """One request to the gateway: the longest context there is as text, or some images."""

    requests_bytes: int = 512 * MIB
    """What all requests to one gateway that are under way hold together, decoded; who comes beyond it is to wait."""

    answer_bytes: int = 32 * MIB
    """One answer through the gateway; a whole one is read before it is judged, a stream is cut here."""

    trace_bytes: int = 1 * MIB
    """Kept of one model call's request and answer together; what is cut off is counted."""

    rollout_trace_bytes: int = 4 * MIB
    """The same of all model calls of one rollout: the newest ones whole, since a request repeats those before it."""

    model_connect_s: float = 10.0
    """From the gateway to a model's server; one that takes longer is down, or behind a filter that drops."""

    model_silence_s: float = 300.0
    """Between two pieces of a model's answer, its beginning included: a long answer that is not streamed."""

    restarts: int = 3
    """Workers that may end or fail to start in a row before the environment gives up; a whole group starts anew."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.type in ("int | None", "float | None"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"limit {field.name} must be a number, got {value!r}")
            if field.type in ("int", "int | None") and not isinstance(value, int):
                raise ValueError(f"limit {field.name} must be a whole number, got {value!r}")
            if not math.isfinite(value) or value < 0 or (value == 0 and field.name != "restarts"):
                raise ValueError(f"limit {field.name} must be positive and finite, got {value!r}")
        if self.transcript_bytes > MAX_TRANSCRIPT_BYTES:
            raise ValueError(
                f"limit transcript_bytes must be at most {MAX_TRANSCRIPT_BYTES}, got {self.transcript_bytes}"
            )
        if self.open_files is not None and self.open_files < MIN_OPEN_FILES:
            raise ValueError(f"limit open_files must be at least {MIN_OPEN_FILES}, got {self.open_files}")


MAX_FRAME_BYTES: Final = 64 * MIB
"""One message on a channel. Larger ones are refused before any of their bytes are read."""

MAX_TRANSCRIPT_BYTES: Final = 60 * MIB
"""The most that `transcript_bytes` can be: a message that fits a frame with room for the rest of it."""

MIN_OPEN_FILES: Final = 256
"""The least that `open_files` can be: a sandbox is started with some ten, under numbers that nothing else has."""

MAX_TRANSCRIPT_VALUES: Final = 200_000
"""Arrays, objects and what they hold, in one transcript: in JSON a value takes two bytes, decoded some forty."""

MAX_TRANSCRIPT_DEPTH: Final = 100
"""Arrays and objects inside each other in a transcript, far from where recursion over them could break."""

VALUE_BYTES: Final = 96
"""What one value of decoded JSON takes at most, on average: an object with one member counts as two."""

MAX_TEXT_CHARS: Final = 16 * KIB
"""An error text or one log line; a message beyond this helps nobody."""

MAX_TRACEBACK_CHARS: Final = 64 * KIB
"""A formatted traceback: some hundred frames."""

MAX_ID_CHARS: Final = 4 * KIB
"""Rollout ids, example ids, names and reasons."""

MAX_URL_CHARS: Final = 8 * KIB
"""A model's base URL; browsers and servers stop at about the same length."""

MAX_REWARD_BYTES: Final = 1 * MIB
"""One rollout's reward map as JSON."""

MAX_REWARD_COMPONENTS: Final = 10_000
"""Components of one rollout's rewards; each takes some hundred bytes more than in JSON."""

MAX_HEADER_REQUESTS: Final = 10_000
"""Header requests of one worker that may wait at once: more than it can have rollouts that ask for some."""

MAX_TRIAL_REQUESTS: Final = 10_000
"""Requests of one worker for sandboxes that may wait at once: more than it can have rollouts that run trials."""

MAX_HEADER_DENIALS: Final = 100_000
"""Header requests beyond a limit that are refused politely; a worker that still goes on is ended."""

HEADER_BURST_S: Final = 50
"""Seconds' worth of header requests that may come at once, so that many short rollouts never meet the limit."""

MAX_HEADER_BYTES: Final = 64 * KIB
"""All headers of one model request together; servers refuse a fraction of it."""

PROVIDER_THREADS: Final = 8
"""Credential sources that may block at the same time, each in a thread; the others wait for their turn."""

PROVIDER_GRACE_S: Final = 1.0
"""How long a cancelled credential source may take to clean up when nobody waits for it any more."""

AUDIT_ENTRIES: Final = 1_000
"""Kept of each verdict of the header audit, the newest; older ones are counted."""

AUDIT_PLACES: Final = 1_000
"""Bindings and origins that the header audit counts apart; a worker can name any number of them."""

MAX_AUDIT_CHARS: Final = 500
"""Each text of an entry of the header audit."""

REDACTED_VALUES: Final = 100_000
"""Values that are redacted at least, counted from the newest; twice as many are known at most, in about 40 MB."""

PARTIAL_VALUES: Final = 1_000
"""Newest values of which even a piece is redacted where a text was shortened."""

MAX_PLAIN_REWARDS: Final = 16
"""Rewards of one rollout in the short form of its outcome."""

MAX_PLAIN_CHARS: Final = 128
"""A name or reason in that form; with the numbers around, a message full of them is a small part of a frame."""

MAX_PLAIN_OUTCOMES: Final = 1000
"""Outcomes in one message in that form; larger groups take the long one."""

MAX_GROUP_ROLLOUTS: Final = 100_000
"""Rollouts in one group message."""

DATASET_PART_IDS: Final = 10_000
"""Example ids per dataset message, so that a large dataset does not need one huge frame."""

DATASET_PART_CHARS: Final = 1 * MIB
"""The same in characters: ids may be long."""

MAX_DIAGNOSTICS: Final = 100
"""Findings of an environment about itself; each may hold three texts."""

LOG_LINE_CHARS: Final = 16
"""What a line costs of `rollout_log_bytes` beyond its text and logger, so that empty ones are not free."""

LOG_SLACK: Final = 4
"""How many times its limit one rollout may be told: what it prints and what its group does count apart, with spare."""

MAX_EXCESS_LINES: Final = 1_000
"""Log lines beyond its limits that are only counted; an honest worker sends none, so more of them are a flood."""

MAX_LOADED_MODULES: Final = 20_000
"""Modules in one list of what a worker loaded; a worker with several large frameworks has some thousand."""

MAX_LOADED_MESSAGES: Final = 2
"""Lists of loaded modules from one worker: after its first call with rollouts, and at its end."""

MAX_MODULE_CHARS: Final = 512
"""A module's path relative to its venv; with the number above, the list always fits a frame."""

MAX_SNAPSHOTS: Final = 1_000
"""Rollouts whose stack and messages are asked for at once; with more in flight the others go without."""

MAX_DUMP_BYTES: Final = 64 * KIB
"""What a dying worker's interpreter can say of where it was: some hundred frames of some threads."""

INSPECT_S: Final = 0.5
"""How long a worker may take to say where its rollouts are, before it is asked to stop them or killed."""

DUMP_S: Final = 0.2
"""The same for the interpreter itself, which answers a signal, when no thread of the worker gets to run."""

TERM_GRACE_S: Final = 2.0
"""Between SIGTERM and SIGKILL when a process tree is ended: enough to flush, too short to be annoying."""

REAP_S: Final = 10.0
"""How long a killed tree may take to disappear, or its supervisor to say what is left of it, before it is given up."""

SANDBOX_SHM_BYTES: Final = 256 * MIB
"""A sandbox's own /dev/shm, which is memory: room for some data loaders, not for a flood."""

SANDBOX_TMP_BYTES: Final = 256 * MIB
"""A sandbox's own /tmp, for programs that do not look at TMPDIR; memory as well."""

TRIAL_START_S: Final = 60.0
"""From a trial sandbox's start to its first word; it takes some hundred milliseconds."""

BUILT_WHEEL_BYTES: Final = 2048 * MIB
"""A wheel that a build leaves; the largest there are, with libraries for accelerators, have less."""

BUILT_FILES: Final = 500_000
"""Files and folders that are looked through for the wheel that a build left."""

MAX_ENDPOINTS: Final = 100
"""Places that a worker may reach in a network of its own; their sockets are handed over in one message."""

EGRESS_CONNECTIONS: Final = 1_000
"""Connections at once out of one environment's workers, as an HTTP client has at most; each takes two descriptors."""

EGRESS_CONNECTIONS_PER_S: Final = 1_000
"""New connections of one worker per second in the long run; each costs the caller some tenth of a millisecond."""

EGRESS_CONNECT_S: Final = 10.0
"""Looking up and connecting to an endpoint; a machine that takes longer is down, or behind a filter that drops."""

EGRESS_FAILURES: Final = 20
"""Different reasons for which connections could not be made that are told; the others are counted."""

MAX_SESSION_ID_CHARS: Final = 100
"""A session's id in a URL of the gateway; longer rollout ids are told apart by a digest."""

ENDED_SESSIONS: Final = 10_000
"""Keys of sessions that are over and still known as such, so that who is late is told so."""

SESSION_TTL_S: Final = 86_400.0
"""The most that who opens a session over HTTP may ask for."""

GATEWAY_CONNECTIONS: Final = 10_000
"""Connections to one gateway at once, where this process has descriptors for as many."""

GATEWAY_HEAD_BYTES: Final = 64 * KIB
"""Request line and headers of a request to the gateway."""

GATEWAY_REQUEST_S: Final = 60.0
"""From a connection's first moment to its first request, and for one request's body; on one machine that is plenty."""

GATEWAY_LINGER_S: Final = 2.0
"""How long a client that was refused in the middle of its request may go on sending: cut off, it would not see why."""

GATEWAY_IDLE_S: Final = 60
"""How long the gateway keeps a connection that nothing is asked on: longer than clients do, so that none is cut off."""

GATEWAY_TLS_S: Final = 10.0
"""One TLS handshake with the gateway."""

MAX_REDIRECTS: Final = 3
"""Redirects within a model server's own origin that are followed in a row: a slash added, a host's alias."""

MAX_JSON_VALUES: Final = 1_000_000
"""Arrays, objects and what they hold, in one request or answer that the gateway decodes: half a million tokens fit."""

TRACE_OVERHEAD_BYTES: Final = 1 * KIB
"""What a call's trace takes beside its bodies and headers, so that calls without either are not kept without end."""

ERROR_CHARS: Final = 500
"""Shown of an answer that is none, such as a page of some proxy."""
