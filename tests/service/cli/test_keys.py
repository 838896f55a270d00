"""`benchmax keys`: made once, shown once, and worthless when revoked."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.service.database import audit, keys
from runner.service.database.database import Database
from runner.service.database.rows import KeyRow
from tests.integration.command_line import CommandLine, Finished

pytestmark = pytest.mark.integration


@pytest.fixture
def database(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///"))


def options(database: Path) -> tuple[str, str]:
    return ("--database", f"sqlite:///{database}")


def found(database: Path, secret: str) -> KeyRow | None:
    with contextlib.closing(Database.open(f"sqlite:///{database}", threads=1)) as opened:
        return opened.read_now(keys.find, secret)


def test_a_secret_is_alone_on_standard_output_and_nowhere_else(benchmax: CommandLine, database: Path) -> None:
    finished = benchmax("keys", "create", "ci", "--tenant", "acme", *options(database))
    secret = finished.good().removesuffix("\n")
    assert secret not in finished.err
    assert "of tenant acme may models, read, submit; its secret is not shown again" in finished.err
    key = found(database, secret)
    assert key is not None
    assert (key.name, key.tenant, key.expires_at, key.max_jobs) == ("ci", "acme", None, 100)
    assert secret.encode() not in database.read_bytes()
    listed = benchmax("keys", "list", *options(database))
    assert key.id in listed.good()
    assert secret not in listed.out + listed.err


def test_a_key_is_given_what_the_command_says(here: Callable[..., Finished], database: Path) -> None:
    arguments = (
        "keys create ops --scope read --scope admin --expires 30d --max-bytes 2GB --max-jobs 3 --max-running 2 "
        "--requests-per-minute 9 --json"
    )
    facts = json.loads(here(*arguments.split(), *options(database)).good())
    assert facts["scopes"] == ["admin", "read"]
    assert facts["quotas"] == {"max_bytes": 2_000_000_000, "max_jobs": 3, "max_running": 2, "requests_per_minute": 9}
    assert facts["expires_at"] - facts["created_at"] == pytest.approx(30 * 86400, abs=60)
    assert found(database, facts["secret"]) is not None


def test_a_revoked_key_is_listed_and_not_good(here: Callable[..., Finished], database: Path) -> None:
    facts = json.loads(here("keys", "create", "ci", "--json", *options(database)).good())
    assert f"revoked {facts['id']} (ci)" in here("keys", "revoke", facts["id"], *options(database)).good()
    assert found(database, facts["secret"]) is None
    (listed,) = json.loads(here("keys", "list", "--json", *options(database)).good())["keys"]
    assert listed["revoked_at"] is not None
    assert listed["usage"] == {"bytes": 0, "jobs": 0, "running": 0}
    with contextlib.closing(Database.open(f"sqlite:///{database}", threads=1)) as opened:
        entries = opened.read_now(audit.page, limit=10)
    assert [(entry.action, entry.object) for entry in entries] == [
        ("key.revoke", facts["id"]),
        ("key.create", facts["id"]),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("keys revoke key_nothing", "there is no key 'key_nothing'"),
        ("keys create ", "NAME must be a text of 1 to 200 printable characters"),
        ("keys create x --scope all", "--scope: invalid choice: 'all'"),
        ("keys create x --max-jobs 0", "--max-jobs: must be a whole number of at least 1"),
        ("keys create x --expires soon", "--expires: must be an age such as 30d"),
        ("keys create x --tenant \t", "--tenant must be a text"),
        ("keys", "ACTION"),
    ],
)
def test_a_mistake_is_said_in_one_line(line: str, said: str, here: Callable[..., Finished], database: Path) -> None:
    arguments = line.split(" ")
    assert said in here(*arguments, *(options(database) if len(arguments) > 1 else ())).error(2)


def test_without_a_database_it_is_said_what_makes_one(here: Callable[..., Finished], tmp_path: Path) -> None:
    said = here("keys", "list", "--data", str(tmp_path / "nowhere")).error(3)
    assert "there is no such file. `benchmax serve` makes it" in said


def test_a_database_of_a_newer_release_is_left_alone(here: Callable[..., Finished], database: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    said = here("keys", "create", "x", *options(database)).error(3)
    assert "its schema is revision 9999" in said
    assert "Use the release of benchmax" in said
