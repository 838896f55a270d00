"""What goes over the wire of the REST API, as types: the server answers with them, the typed client reads them.

Whoever reads ignores fields that it does not know, and fields are only ever added, with defaults. A request is
different: a field that the server does not know is refused, since what its sender meant by it would not happen.
Times are seconds since 1970 by the database's clock; sizes are bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Scope: TypeAlias = Literal["submit", "read", "models", "admin"]
State: TypeAlias = Literal["queued", "running", "done", "failed", "cancelled"]
Judgement: TypeAlias = Literal["valid", "invalid", "unjudged"]
Split: TypeAlias = Literal["train", "eval"]

OVER: Final = frozenset({"done", "failed", "cancelled"})
"""States in which nothing happens any more."""

MAX_PATH_CHARS: Final = 512
MAX_SEGMENT_BYTES: Final = 255
"""What file systems take as a name."""

MAX_FILES: Final = 1_000
MAX_UPLOAD_BYTES: Final = 1 << 40
"""Of what can be asked for; what a server and a key allow is less."""

_MAX_COUNT: Final = 1 << 53
"""Numbers that every reader of JSON takes as they are."""

NAME_PATTERN: Final = r"^[^\x00-\x1f\x7f]+$"
ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}$"
_ANY: Final = r"[^/\x00-\x1f\x7f]"
_SEGMENT: Final = rf"([^./\x00-\x1f\x7f]{_ANY}{{0,254}}|\.[^./\x00-\x1f\x7f]{_ANY}{{0,253}}|\.\.{_ANY}{{1,253}})"
PATH_PATTERN: Final = f"^{_SEGMENT}(/{_SEGMENT})*$"
MIME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$"


def _checked_path(path: str) -> str:
    if any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in path.split("/")):
        raise ValueError(f"no segment may have more than {MAX_SEGMENT_BYTES} bytes")
    return path


def _whole(value: object) -> object:
    """JSON has one kind of numbers, and 3.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE: Final = BeforeValidator(_whole)
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=NAME_PATTERN)]
Id: TypeAlias = Annotated[str, Field(pattern=ID_PATTERN)]
RelativePath: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_PATH_CHARS,
        pattern=PATH_PATTERN,
        description="Segments joined by '/', none of which is '.' or '..' or has more than 255 bytes.",
    ),
    AfterValidator(_checked_path),
]
Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count: TypeAlias = Annotated[int, Field(ge=0, le=_MAX_COUNT), WHOLE]


class _Asked(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Answered(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ErrorFacts(_Answered):
    """What went wrong.

    Args:
        code: Stable and unique; match on it.
        message: What failed and the fact behind it.
        hint: What to do next; empty where there is nothing useful to say.
    """

    code: str
    message: str
    hint: str = ""


class ErrorAnswer(_Answered):
    """The body of every answer that is an error."""

    error: ErrorFacts
    request_id: str


class NewUpload(_Asked):
    """Asks for a place to send a file to.

    Args:
        path: What the file is called among the tenant's.
        bytes: Its exact size.
        sha256: Its digest, in lower-case hexadecimal.
        mime: Its media type.
    """

    path: RelativePath
    bytes: Annotated[int, Field(ge=0, le=MAX_UPLOAD_BYTES), WHOLE]
    sha256: Sha256
    mime: Annotated[str, Field(max_length=100, pattern=MIME_PATTERN)] = "application/octet-stream"


class UploadPlace(_Answered):
    """Where to send a file.

    Args:
        id: The upload, for `NewValidation`.
        url: Takes one PUT with the file's bytes, without any credential.
        expires_at: Until when.
    """

    id: str
    url: str
    expires_at: float


class Upload(_Answered):
    """A file that has arrived."""

    id: str
    path: str
    mime: str
    bytes: int
    sha256: str
    stored_at: float


class ArtifactUploads(_Asked):
    """The two files of an artifact.

    Args:
        pickle: Upload of `env-cls.pkl`.
        metadata: Upload of `env-metadata.json`.
    """

    pickle: Id
    metadata: Id


class DataFile(_Asked):
    """One file of the data that the environment reads.

    Args:
        path: Where it is in the data folder.
        upload: Its upload.
    """

    path: RelativePath
    upload: Id


class ValidationOptions(_Asked):
    """How to judge.

    Args:
        model: One of the server's models; its default when `None`.
        split: Which split is tried.
        timeout_s: Seconds that one rollout may take; the server's own when `None`.
        max_context_tokens: Tokens of one rollout's conversation; the model's own when `None`.
    """

    model: Name | None = None
    split: Split = "eval"
    timeout_s: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None
    max_context_tokens: Annotated[int, Field(ge=1, le=100_000_000), WHOLE] | None = None


class NewValidation(_Asked):
    """Asks for a validation.

    Args:
        name: For people.
        artifact: What is judged.
        files: The data it reads.
        options: How.
    """

    name: Name
    artifact: ArtifactUploads
    files: Annotated[list[DataFile], Field(max_length=MAX_FILES, json_schema_extra={"uniqueItems": True})] = []
    options: ValidationOptions = ValidationOptions()


class OptionFacts(_Answered):
    """How a validation judges, as it was asked."""

    model: str | None = None
    split: Split = "eval"
    timeout_s: float | None = None
    max_context_tokens: int | None = None


class Validation(_Answered):
    """A validation, in any state.

    Args:
        id: Its id.
        name: For people.
        state: `done` has a judgement, `failed` an error.
        judgement: What the verdict says; `None` before.
        error: Why it failed; empty otherwise.
        options: How it judges.
        attempts: How often it was begun.
        cancelling: Whether it was asked to stop and has not yet.
        last_seq: Number of its newest event; 0 for none.
        created_at, started_at, ended_at: When; `None` for not yet.
        has_verdict, has_report, has_logs: What can be fetched.
    """

    id: str
    name: str
    state: State
    judgement: Judgement | None = None
    error: str = ""
    options: OptionFacts = OptionFacts()
    attempts: int = 0
    cancelling: bool = False
    last_seq: int = 0
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    has_verdict: bool = False
    has_report: bool = False
    has_logs: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing happens any more."""
        return self.state in OVER


class ValidationPage(_Answered):
    """Some validations, newest first.

    Args:
        items: The validations.
        next: What to give as `before` for those after; `None` at the end.
    """

    items: list[Validation]
    next: str | None = None


class Event(_Answered):
    """Something that happened in a validation, as its stream tells it.

    Args:
        seq: Its number, counted from 1 without gaps.
        kind: `phase`, `rollout`, `log`, `calls`, `finding`, `verdict`, `end`, or one that came later.
        data: What happened.
    """

    seq: int
    kind: str
    data: dict[str, Any]


class Quotas(_Answered):
    """What a key may use at most.

    Args:
        max_bytes: Of its uploads that are kept.
        max_jobs: Of its jobs that are queued or running.
        max_running: Of those that run at the same time.
        requests_per_minute: In the long run.
    """

    max_bytes: int
    max_jobs: int
    max_running: int
    requests_per_minute: int


class KeyUsage(_Answered):
    """What a key uses now; see `Quotas`."""

    bytes: int
    jobs: int
    running: int


class NewQuotas(_Asked):
    """Quotas of a new key; each is the creating key's own when `None`, and at most that."""

    max_bytes: Count | None = None
    max_jobs: Count | None = None
    max_running: Count | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=_MAX_COUNT), WHOLE] | None = None


class NewKey(_Asked):
    """Asks for a key of the same tenant.

    Args:
        name: For people.
        scopes: What it may do; none that the creating key may not.
        expires_in_s: Seconds until it is no longer accepted; never when `None`.
        quotas: What it may use.
    """

    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=4)]
    expires_in_s: Annotated[float, Field(gt=0, le=10 * 366 * 86_400, allow_inf_nan=False)] | None = None
    quotas: NewQuotas = NewQuotas()


class Key(_Answered):
    """A key, without its secret."""

    id: str
    name: str
    scopes: list[Scope]
    quotas: Quotas
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None


class CreatedKey(Key):
    """A key that was just made.

    Args:
        secret: What to send as bearer. It is shown here and never again.
    """

    secret: str


class KeyList(_Answered):
    """All keys of a tenant."""

    items: list[Key]


class Tenant(_Answered):
    """Who a key belongs to."""

    id: str
    name: str


class Me(_Answered):
    """Who asks, what it may do and use, and what it uses."""

    tenant: Tenant
    key: Key
    usage: KeyUsage


class AuditEntry(_Answered):
    """One change, or one access that was denied.

    Args:
        id: Its number.
        at: When.
        key_id: Whose key; `None` for none that is known.
        action: What was tried, such as `validation.cancel`.
        object: On what.
        outcome: `ok`, or the code of the error.
        request_id: In which request.
        address: From where.
        detail: More, for people.
    """

    id: int
    at: float
    key_id: str | None = None
    action: str
    object: str = ""
    outcome: str
    request_id: str = ""
    address: str = ""
    detail: str = ""


class AuditPage(_Answered):
    """Some entries of the audit, newest first.

    Args:
        items: The entries.
        next: What to give as `before` for those after; `None` at the end.
    """

    items: list[AuditEntry]
    next: int | None = None


class Health(_Answered):
    """That the process answers."""

    status: Literal["ok"]


class Readiness(_Answered):
    """Whether requests should be sent here.

    Args:
        status: `ready`, `draining` when it is about to end, `unready` when something it needs is not there.
        checks: What was looked at: `ok`, or what is wrong.
    """

    status: Literal["ready", "draining", "unready"]
    checks: dict[str, str]
