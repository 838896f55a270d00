"""Uploads: room is taken when they are announced, the newest stored one counts, and quotas hold under races."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from runner.errors import ConflictError, QuotaError
from runner.service.database import keys, uploads
from runner.service.database.database import Database
from runner.service.database.schema import uploads as upload_table
from tests.service.database.lab import announce, at_once, digest_of, execute, make_key, pin, upload


def test_an_upload_is_announced_and_then_stored(database: Database) -> None:
    key = make_key(database)
    announced = announce(database, key, "a/b", expected_bytes=5, expected_sha256=digest_of("hello"))
    assert (announced.state, announced.blob, announced.stored_at) == ("pending", None, None)
    assert announced.expires_at > announced.created_at
    assert database.read_now(uploads.latest, key.tenant_id, "a/b") is None
    (digest,) = pin(database, "hello")
    stored = database.run_now(uploads.stored, announced.id, digest, 5)
    assert stored == replace(announced, state="stored", blob=digest, bytes=5, stored_at=stored.stored_at)
    assert database.read_now(uploads.latest, key.tenant_id, "a/b") == stored
    assert database.read_now(uploads.get, key.tenant_id, announced.id) == stored
    assert database.read_now(uploads.find, announced.id) == stored


def test_the_newest_stored_upload_of_a_path_counts(database: Database) -> None:
    key = make_key(database)
    first = upload(database, key, "a", "one")
    second = upload(database, key, "a", "two")
    announce(database, key, "a")
    assert database.read_now(uploads.latest, key.tenant_id, "a") == second
    execute(database, update(upload_table).where(upload_table.c.id == second.id).values(stored_at=1.0))
    assert database.read_now(uploads.latest, key.tenant_id, "a") == first


def test_what_is_below_a_prefix_is_the_newest_of_each_path(database: Database) -> None:
    key, other = make_key(database), make_key(database, "other")
    for path in ("d/x/train.jsonl", "d/x/deep/eval.jsonl", "d/xy/no.jsonl", "d/x", "D/x/no", "d/%/no", "é/x/train"):
        upload(database, key, path, path)
    upload(database, other, "d/x/theirs", "theirs")
    newer = upload(database, key, "d/x/train.jsonl", "newer")
    announce(database, key, "d/x/never")
    for prefix in ("d/x", "d/x/", "d/x//"):
        found = database.read_now(uploads.below, key.tenant_id, prefix)
        assert [row.path for row in found] == ["d/x/deep/eval.jsonl", "d/x/train.jsonl"]
        assert found[1] == newer
    assert [row.path for row in database.read_now(uploads.below, key.tenant_id, "é/x")] == ["é/x/train"]


def test_uploads_of_another_tenant_are_not_seen(database: Database) -> None:
    ours, theirs = make_key(database), make_key(database, "other")
    row = upload(database, theirs, "a", "one")
    assert database.read_now(uploads.latest, ours.tenant_id, "a") is None
    assert database.read_now(uploads.get, ours.tenant_id, row.id) is None


def test_an_upload_is_stored_once_and_the_same_again_changes_nothing(database: Database) -> None:
    key = make_key(database)
    row = upload(database, key, "a", "one")
    assert row.blob is not None
    assert database.run_now(uploads.stored, row.id, row.blob, 3) == row
    (other,) = pin(database, "other")
    with pytest.raises(ConflictError, match="stored already, with other content"):
        database.run_now(uploads.stored, row.id, other, 5)


def test_an_upload_that_is_not_what_it_was_announced_as_is_refused(database: Database) -> None:
    key = make_key(database)
    (digest,) = pin(database, "hello")
    longer = announce(database, key, "a", expected_bytes=6)
    other = announce(database, key, "a", expected_sha256=digest_of("other"))
    with pytest.raises(ConflictError, match="other bytes than announced: 5 instead of 6"):
        database.run_now(uploads.stored, longer.id, digest, 5)
    with pytest.raises(ConflictError, match="other SHA-256 than announced"):
        database.run_now(uploads.stored, other.id, digest, 5)
    with pytest.raises(ConflictError, match="The upload is over"):
        database.run_now(uploads.stored, "upl_unknown", digest, 5)


def test_content_that_was_never_put_into_the_store_cannot_be_stored(database: Database) -> None:
    key = make_key(database)
    row = announce(database, key, "a")
    with pytest.raises(ConflictError, match="not there any more"):
        database.run_now(uploads.stored, row.id, digest_of("never"), 5)
    found = database.read_now(uploads.find, row.id)
    assert found == row


def test_an_upload_that_began_in_time_is_stored_also_when_its_time_is_over(database: Database) -> None:
    key = make_key(database)
    row = announce(database, key, "a", lifetime_s=-1.0)
    (digest,) = pin(database, "hello")
    assert database.run_now(uploads.stored, row.id, digest, 5).state == "stored"


def test_room_is_taken_when_an_upload_is_announced(database: Database) -> None:
    key = make_key(database, max_bytes=10)
    announce(database, key, "a", expected_bytes=6)
    with pytest.raises(QuotaError, match="11 of 10 bytes") as caught:
        announce(database, key, "b", expected_bytes=5)
    assert (caught.value.which, caught.value.limit) == ("bytes", 10)
    announce(database, key, "c", expected_bytes=4)


def test_room_of_an_upload_that_never_came_is_free_again(database: Database) -> None:
    key = make_key(database, max_bytes=10)
    announce(database, key, "a", expected_bytes=10, lifetime_s=-1.0)
    announce(database, key, "b", expected_bytes=10)


def test_an_upload_of_unknown_size_is_refused_when_it_turns_out_too_large(database: Database) -> None:
    key = make_key(database, max_bytes=10)
    row = announce(database, key, "a")
    (digest,) = pin(database, "0123456789x")
    with pytest.raises(QuotaError, match="11 of 10 bytes"):
        database.run_now(uploads.stored, row.id, digest, 11)
    assert database.read_now(keys.usage, key.id).bytes == 0


def test_an_upload_for_a_key_that_is_not_there_is_refused(database: Database) -> None:
    key = make_key(database)
    with pytest.raises(ConflictError, match="no such key"):
        announce(database, replace(key, id="key_unknown"), "a")


def test_many_that_take_room_at_once_never_take_more_than_there_is(database: Database) -> None:
    key = make_key(database, max_bytes=40)

    def take(number: int) -> bool:
        try:
            announce(database, key, f"path-{number}", expected_bytes=10)
        except QuotaError:
            return False
        return True

    assert sum(at_once(8, take)) == 4
    assert database.read_now(keys.usage, key.id).bytes == 40


def test_many_that_store_at_once_never_keep_more_than_there_is_room_for(database: Database) -> None:
    key = make_key(database, max_bytes=40)
    texts = [f"{number}" * 10 for number in range(8)]
    digests = pin(database, *texts)
    rows = [announce(database, key, text) for text in texts]

    def store(number: int) -> bool:
        try:
            database.run_now(uploads.stored, rows[number].id, digests[number], 10)
        except QuotaError:
            return False
        return True

    assert sum(at_once(8, store)) == 4
    assert database.read_now(keys.usage, key.id).bytes == 40
