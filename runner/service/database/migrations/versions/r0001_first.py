"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("tenant_id", sa.Text()),
        sa.Column("key_id", sa.Text()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_tenant_id_id", "audit", ["tenant_id", "id"])
    op.create_table(
        "blobs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blobs"),
    )
    op.create_index("ix_blobs_created_at", "blobs", ["created_at"])
    op.create_table(
        "executors",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("stopped_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_executors"),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_settings"),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenants"),
        sa.UniqueConstraint("name", name="uq_tenants_name"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double()),
        sa.Column("revoked_at", sa.Double()),
        sa.Column("last_used_at", sa.Double()),
        sa.Column("served_at", sa.Double()),
        sa.Column("max_bytes", sa.BigInteger(), nullable=False),
        sa.Column("max_jobs", sa.BigInteger(), nullable=False),
        sa.Column("max_running", sa.BigInteger(), nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_keys_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        sa.UniqueConstraint("digest", name="uq_keys_digest"),
    )
    op.create_index("ix_keys_tenant_id", "keys", ["tenant_id"])
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_browser_sessions_key_id"),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_key_id", "browser_sessions", ["key_id"])
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("judgement", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("verdict_blob", sa.Text()),
        sa.Column("report_blob", sa.Text()),
        sa.Column("logs_blob", sa.Text()),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("executor_id", sa.Text()),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", sa.Double()),
        sa.Column("cancel_requested_at", sa.Double()),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double()),
        sa.Column("ended_at", sa.Double()),
        sa.CheckConstraint("(state = 'running') = (lease_until IS NOT NULL)", name=op.f("ck_jobs_leased")),
        sa.CheckConstraint(
            "(state IN ('done', 'failed', 'cancelled')) = (ended_at IS NOT NULL)", name=op.f("ck_jobs_ended")
        ),
        sa.CheckConstraint("judgement IN ('valid', 'invalid', 'unjudged')", name=op.f("ck_jobs_judgement")),
        sa.CheckConstraint("kind IN ('validation', 'batch')", name=op.f("ck_jobs_kind")),
        sa.CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled')", name=op.f("ck_jobs_state")),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_jobs_key_id"),
        sa.ForeignKeyConstraint(["logs_blob"], ["blobs.digest"], name="fk_jobs_logs_blob"),
        sa.ForeignKeyConstraint(["report_blob"], ["blobs.digest"], name="fk_jobs_report_blob"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_jobs_tenant_id"),
        sa.ForeignKeyConstraint(["verdict_blob"], ["blobs.digest"], name="fk_jobs_verdict_blob"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_ended_at", "jobs", ["ended_at"])
    op.create_index("ix_jobs_logs_blob", "jobs", ["logs_blob"])
    op.create_index(
        "ix_jobs_queued",
        "jobs",
        ["key_id", "created_at"],
        postgresql_where=sa.text("state = 'queued'"),
        sqlite_where=sa.text("state = 'queued'"),
    )
    op.create_index("ix_jobs_report_blob", "jobs", ["report_blob"])
    op.create_index(
        "ix_jobs_running",
        "jobs",
        ["key_id", "lease_until"],
        postgresql_where=sa.text("state = 'running'"),
        sqlite_where=sa.text("state = 'running'"),
    )
    op.create_index("ix_jobs_tenant_id_kind_created_at", "jobs", ["tenant_id", "kind", "created_at"])
    op.create_index("ix_jobs_verdict_blob", "jobs", ["verdict_blob"])
    op.create_table(
        "uploads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("mime", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("expected_bytes", sa.BigInteger()),
        sa.Column("expected_sha256", sa.Text()),
        sa.Column("blob", sa.Text()),
        sa.Column("bytes", sa.BigInteger()),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("stored_at", sa.Double()),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.CheckConstraint("(state = 'stored') = (blob IS NOT NULL)", name=op.f("ck_uploads_stored")),
        sa.CheckConstraint("state IN ('pending', 'stored')", name=op.f("ck_uploads_state")),
        sa.ForeignKeyConstraint(["blob"], ["blobs.digest"], name="fk_uploads_blob"),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name="fk_uploads_key_id"),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name="fk_uploads_tenant_id"),
        sa.PrimaryKeyConstraint("id", name="pk_uploads"),
    )
    op.create_index("ix_uploads_blob", "uploads", ["blob"])
    op.create_index("ix_uploads_created_at", "uploads", ["created_at"])
    op.create_index("ix_uploads_key_id", "uploads", ["key_id"])
    op.create_index("ix_uploads_tenant_id_path_stored_at", "uploads", ["tenant_id", "path", "stored_at"])
    op.create_table(
        "events",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_events"),
    )
    op.create_table(
        "job_blobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["digest"], ["blobs.digest"], name="fk_job_blobs_digest"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_blobs_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "role", name="pk_job_blobs"),
    )
    op.create_index("ix_job_blobs_digest", "job_blobs", ["digest"])
