"""The tables, as the newest migration leaves them.

Times are seconds since 1970 by the database's own clock (`now`), so that machines whose clocks differ agree. Sizes are
bytes. Ids are a prefix and 100 random bits (`new_id`). A migration never imports this module: it has to go on making
what it made when it was written; a test compares the two.
"""

from __future__ import annotations

import base64
import re
import secrets
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    literal_column,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

KINDS: Final = ("validation", "batch")
OPEN_STATES: Final = ("queued", "running")
ENDED_STATES: Final = ("done", "failed", "cancelled")
JUDGEMENTS: Final = ("valid", "invalid", "unjudged")

_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class now(FunctionElement[float]):  # noqa: N801  # reads as the SQL function that it is
    """The database's clock at this moment, also late in a transaction that had to wait: seconds since 1970."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: SQLCompiler, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


class SafeText(TypeDecorator[str]):
    """Text in which whatever a database cannot hold, NUL and lone surrogates, is replaced by U+FFFD."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace what cannot be stored."""
        return None if value is None else _UNSTORABLE.sub("�", value)


def new_id(prefix: str) -> str:
    """Return `prefix`, an underscore and 20 random characters of base32 in lower case."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(13)).decode('ascii')[:20].lower()}"


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

tenants = Table(
    "tenants",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("name", SafeText, nullable=False, unique=True),
    Column("created_at", Double, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False, index=True),
    Column("name", SafeText, nullable=False),
    Column("digest", SafeText, nullable=False, unique=True),
    Column("scopes", JSON, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("last_used_at", Double),
    # when a job of this key was last given to an executor: keys take turns
    Column("served_at", Double),
    Column("max_bytes", BigInteger, nullable=False),
    Column("max_jobs", BigInteger, nullable=False),
    Column("max_running", BigInteger, nullable=False),
    Column("requests_per_minute", BigInteger, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", SafeText, primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    # when it was last taken by somebody; until some time after that it is kept without anything referring to it
    Column("created_at", Double, nullable=False, index=True),
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", ForeignKey("keys.id"), nullable=False, index=True),
    Column("path", SafeText, nullable=False),
    Column("mime", SafeText, nullable=False),
    Column("state", SafeText, nullable=False),
    Column("expected_bytes", BigInteger),
    Column("expected_sha256", SafeText),
    Column("blob", ForeignKey("blobs.digest"), index=True),
    Column("bytes", BigInteger),
    Column("created_at", Double, nullable=False),
    Column("stored_at", Double),
    Column("expires_at", Double, nullable=False),
    _one_of("state", ("pending", "stored")),
    CheckConstraint("(state = 'stored') = (blob IS NOT NULL)", name="stored"),
    Index(None, "tenant_id", "path", "stored_at"),
    Index(None, "created_at"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", ForeignKey("keys.id"), nullable=False),
    Column("kind", SafeText, nullable=False),
    Column("name", SafeText, nullable=False),
    Column("state", SafeText, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("judgement", SafeText),
    Column("error", SafeText),
    Column("verdict_blob", ForeignKey("blobs.digest"), index=True),
    Column("report_blob", ForeignKey("blobs.digest"), index=True),
    Column("logs_blob", ForeignKey("blobs.digest"), index=True),
    Column("attempts", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("executor_id", SafeText),
    Column("fence", BigInteger, nullable=False),
    Column("lease_until", Double),
    Column("cancel_requested_at", Double),
    Column("last_seq", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    _one_of("kind", KINDS),
    _one_of("state", OPEN_STATES + ENDED_STATES),
    _one_of("judgement", JUDGEMENTS),
    CheckConstraint("(state IN ('done', 'failed', 'cancelled')) = (ended_at IS NOT NULL)", name="ended"),
    CheckConstraint("(state = 'running') = (lease_until IS NOT NULL)", name="leased"),
    Index(None, "tenant_id", "kind", "created_at"),
    Index(None, "ended_at"),
    Index(
        "ix_jobs_queued",
        "key_id",
        "created_at",
        postgresql_where=text("state = 'queued'"),
        sqlite_where=text("state = 'queued'"),
    ),
    Index(
        "ix_jobs_running",
        "key_id",
        "lease_until",
        postgresql_where=text("state = 'running'"),
        sqlite_where=text("state = 'running'"),
    ),
)

# with the values spelled out, not bound: only so does a database see that the indexes above fit
IS_QUEUED: Final = jobs.c.state == literal_column("'queued'")
IS_RUNNING: Final = jobs.c.state == literal_column("'running'")

job_blobs = Table(
    "job_blobs",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("role", SafeText, primary_key=True),
    Column("digest", ForeignKey("blobs.digest"), nullable=False, index=True),
)

events = Table(
    "events",
    metadata,
    Column("job_id", ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kind", SafeText, nullable=False),
    Column("body", SafeText, nullable=False),
)

executors = Table(
    "executors",
    metadata,
    Column("id", SafeText, primary_key=True),
    Column("host", SafeText, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started_at", Double, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("stopped_at", Double),
)

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False, index=True),
    Column("tenant_id", SafeText),
    Column("key_id", SafeText),
    Column("action", SafeText, nullable=False),
    Column("object", SafeText, nullable=False),
    Column("outcome", SafeText, nullable=False),
    Column("request_id", SafeText, nullable=False),
    Column("address", SafeText, nullable=False),
    Column("detail", SafeText, nullable=False),
    Index(None, "tenant_id", "id"),
)

browser_sessions = Table(
    "browser_sessions",
    metadata,
    Column("digest", SafeText, primary_key=True),
    Column("key_id", ForeignKey("keys.id"), nullable=False, index=True),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
)

settings = Table(
    "settings",
    metadata,
    Column("name", SafeText, primary_key=True),
    Column("value", SafeText, nullable=False),
)
