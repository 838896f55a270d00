"""Run by alembic, and by nothing else: applies steps on the connection that it is handed, in one transaction."""

from __future__ import annotations

from alembic import context

from runner.service.database.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite can do it, too; alembic is only more careful by default
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
