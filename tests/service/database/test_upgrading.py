"""Upgrading: done once by many, refused for what is newer, from every schema that was ever released."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, select, text

from runner.errors import DatabaseError
from runner.service.database import keys, upgrading
from runner.service.database.database import Database, upgrade
from runner.service.database.engine import make_engine, parse_url
from runner.service.database.schema import metadata
from tests.service.database.lab import at_once, claim, execute, job_of
from tests.service.postgres import Server

DUMPS = Path(__file__).parents[2] / "fixtures" / "service"
"""Databases of earlier schemas with rows in every table, one per revision and kind: `sqlite3 .dump` and
`pg_dump --inserts --no-owner`. One is added with each new revision, and none is ever changed."""


@pytest.fixture
def new_url(server: Server | None, tmp_path: Path) -> str:
    """The URL of a database without tables, once of each kind."""
    return f"sqlite:///{tmp_path}/deep/service.db" if server is None else server.empty()


def shape(connection: Connection) -> dict[str, Any]:
    """Everything about the tables that can be asked for."""
    found = inspect(connection)
    return {
        table: {
            "columns": [(c["name"], str(c["type"]), c["nullable"], c.get("default")) for c in found.get_columns(table)],
            "primary": found.get_pk_constraint(table),
            "foreign": sorted(found.get_foreign_keys(table), key=lambda key: str(key["name"])),
            "unique": sorted(found.get_unique_constraints(table), key=lambda key: str(key["name"])),
            "checks": sorted(found.get_check_constraints(table), key=lambda check: str(check["name"])),
            "indexes": sorted(
                (i["name"], i["column_names"], i["unique"], str(i.get("dialect_options", {}).get(f"{kind}_where")))
                for i in found.get_indexes(table)
                for kind in [connection.dialect.name]
            ),
        }
        for table in found.get_table_names()
        if table != "alembic_version"
    }


def test_the_steps_lead_to_the_tables_that_the_code_has(new_url: str, server: Server | None, tmp_path: Path) -> None:
    upgrade(new_url)
    opened = Database.open(new_url)
    assert opened.read_now(lambda connection: compare_metadata(MigrationContext.configure(connection), metadata)) == []
    other = make_engine(parse_url(f"sqlite:///{tmp_path}/made.db" if server is None else server.empty()), connections=1)
    with other.begin() as connection:
        metadata.create_all(connection)
        # checks and conditions of indexes are not compared above
        assert opened.read_now(shape) == shape(connection)
    other.dispose()
    opened.close()


def test_a_new_database_is_made_and_a_second_time_nothing_is_done(new_url: str) -> None:
    newest = upgrading.newest()
    assert upgrade(new_url) == (None, newest)
    assert upgrade(new_url) == (newest, newest)


def test_a_sqlite_file_is_nobody_elses_business(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "service.db"
    upgrade(f"sqlite:///{path}")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_of_many_that_upgrade_at_once_one_does_it(new_url: str) -> None:
    newest = upgrading.newest()
    done = at_once(4, lambda number: upgrade(new_url))
    assert sorted(done, key=str) == sorted([(None, newest), *[(newest, newest)] * 3], key=str)


def test_a_step_that_fails_leaves_nothing(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = command.upgrade

    def upgrade_and_fail(config: Config, revision: str) -> None:
        original(config, revision)
        raise RuntimeError("at the end")

    with monkeypatch.context() as changed:
        changed.setattr(command, "upgrade", upgrade_and_fail)
        with pytest.raises(RuntimeError, match="at the end"):
            upgrade(new_url)
    with pytest.raises(DatabaseError, match="has no tables yet"):
        Database.open(new_url)
    assert upgrade(new_url) == (None, upgrading.newest())


def test_a_database_without_tables_is_not_opened(server: Server | None, tmp_path: Path) -> None:
    if server is None:
        (tmp_path / "service.db").touch()
        url = f"sqlite:///{tmp_path}/service.db"
    else:
        url = server.empty()
    with pytest.raises(DatabaseError, match=r"has no tables yet\. `benchmax serve` makes them"):
        Database.open(url)


def test_a_newer_schema_is_refused_and_left_alone(new_url: str) -> None:
    upgrade(new_url)
    opened = Database.open(new_url)
    execute(opened, text("UPDATE alembic_version SET version_num = '9999'"))
    opened.close()
    for attempt in (Database.open, upgrade, upgrade):
        with pytest.raises(DatabaseError, match=f"is revision 9999, this release knows up to {upgrading.newest()}"):
            attempt(new_url)


def test_an_older_schema_is_not_opened(new_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(new_url)
    monkeypatch.setattr(upgrading, "newest", lambda: "0002")
    with pytest.raises(DatabaseError, match=r"is revision 0001, this release needs 0002\. `benchmax serve`"):
        Database.open(new_url)


def test_a_database_of_another_encoding_is_refused(postgres: Server) -> None:
    url = postgres.empty()
    name = "latin"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'".encode())
    with pytest.raises(DatabaseError, match=r"its encoding is LATIN1\. Make one with"):
        upgrade(postgres.url(name))


def restore(url: str, dump: Path) -> None:
    parsed = parse_url(url)
    statements = dump.read_text()
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        with sqlite3.connect(parsed.database) as connection:
            connection.executescript(statements)
        connection.close()
        return
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("\n".join(line for line in statements.splitlines() if not line.startswith("\\")).encode())


def revisions() -> list[str]:
    return sorted({path.name.split(".")[0] for path in DUMPS.glob("*.sql")})


def test_the_revisions_are_those_of_the_steps_in_their_order() -> None:
    steps = ScriptDirectory(str(Path(upgrading.__file__).parent / "migrations")).walk_revisions()
    assert [step.revision for step in steps][::-1] == [*upgrading.REVISIONS]


def test_what_is_of_this_release_is_opened_without_what_applies_steps(sqlite_url: str) -> None:
    program = (
        "import sys; from runner.service.database.database import Database, upgrade;"
        "upgrade(sys.argv[1]); Database.open(sys.argv[1]).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, sqlite_url]).returncode == 0


def test_every_revision_has_its_dumps() -> None:
    steps = {*upgrading.REVISIONS}
    assert steps == set(revisions())
    assert {path.name for path in DUMPS.glob("*.sql")} == {
        f"{step}.{kind}.sql" for step in steps for kind in ("sqlite", "postgresql")
    }


@pytest.mark.parametrize("revision", revisions())
def test_a_database_of_every_earlier_schema_becomes_one_of_this(
    server: Server | None, tmp_path: Path, revision: str
) -> None:
    url = f"sqlite:///{tmp_path}/service.db" if server is None else server.empty()
    restore(url, DUMPS / f"{revision}.{'sqlite' if server is None else 'postgresql'}.sql")
    assert upgrade(url) == (revision, upgrading.newest())
    opened = Database.open(url)
    assert opened.read_now(lambda connection: compare_metadata(MigrationContext.configure(connection), metadata)) == []
    for table in metadata.sorted_tables:
        assert execute(opened, select(table)) != [], table.name
    (key,) = opened.read_now(keys.list_all)
    assert key.scopes == {"read", "submit"}
    claimed = claim(opened)
    assert claimed.job.name == "waiting"
    assert job_of(opened, claimed.job.id).attempts == 1
    opened.close()
