"""A bundle is dropped or chosen, sent, and validated; digests are right in browsers that have them and in others."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from runner.service.database import jobs
from runner.service.database.schema import blobs
from tests.report_page.browser import Tab
from tests.service.http.servers import ServerProcess, Tenant, count_uploads
from tests.service.web.person import Person

CHOSEN = "#chosen tbody tr"
SEND = "#new button.main"


@pytest.fixture
def bundle(open_folder: Path) -> Iterator[Path]:
    """The folder of a bundle, which the browser can read, with a lock that is not sent."""
    made = open_folder / "calculator"
    made.mkdir()
    for name, text in {"env-cls.pkl": "pickle", "env-metadata.json": "{}", "pylock.toml": "lock"}.items():
        (made / name).write_text(text)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def data(open_folder: Path) -> Iterator[Path]:
    """The folder of its data."""
    made = open_folder / "data"
    (made / "more").mkdir(parents=True)
    (made / "eval.jsonl").write_text("{}\n")
    (made / "more" / "a & b <i>.txt").write_text("x" * 100_000)
    (made / ".hidden").write_text("stays where it is")
    yield made
    shutil.rmtree(made)


def inputs(tenant: Tenant, validation_id: str) -> dict[str, int]:
    """The sizes of what a validation was begun with, by role."""

    def read(connection: Connection) -> dict[str, int]:
        sizes = {row.digest: row.bytes for row in connection.execute(select(blobs.c.digest, blobs.c.bytes))}
        return {role: sizes[digest] for role, digest in jobs.inputs(connection, validation_id).items()}

    return tenant.server.database.read_now(read)


def test_folders_are_dropped_and_sent_with_what_they_hold(
    person: Person, tenant: Tenant, bundle: Path, data: Path
) -> None:
    person.go("/validations/new")
    assert person.text("#chosen") == "Still missing: env-cls.pkl and env-metadata.json."
    person.drop("#drop", bundle, data)
    person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 4")
    assert {text.split("\t")[1] for text in person.texts(CHOSEN)} == {"pickle", "metadata", "data"}
    assert "more/a & b <i>.txt\tdata\t97.7 KiB" in "\n".join(person.texts(CHOSEN))
    assert person.tab.evaluate("document.querySelector('[name=name]').value") == "calculator"
    person.reads("4 files chosen", "#said")
    person.fill("[name=timeout_s]", "30")
    person.follow(SEND)
    validation_id = person.path.rpartition("/")[2]
    sent = {"pickle": 6, "metadata": 2, "data/eval.jsonl": 3, "data/more/a & b <i>.txt": 100_000}
    assert inputs(tenant, validation_id) == sent
    made = tenant.http.get(f"/validations/{validation_id}").json()
    assert (made["name"], made["options"]["timeout_s"], made["options"]["split"]) == ("calculator", 30.0, "eval")
    assert person.troubles() == []


def test_files_are_chosen_and_taken_back(person: Person, tenant: Tenant, bundle: Path, data: Path) -> None:
    person.go("/validations/new")
    person.choose("#files", bundle / "env-cls.pkl", bundle / "env-metadata.json", data / "eval.jsonl")
    person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 3")
    person.click(f"{CHOSEN}:nth-child(3) button")
    assert person.count(CHOSEN) == 2
    person.fill("[name=name]", "two files")
    # as where the page did not come over TLS
    person.tab.evaluate("Object.defineProperty(crypto, 'subtle', { value: undefined })")
    person.follow(SEND)
    assert inputs(tenant, person.path.rpartition("/")[2]) == {"pickle": 6, "metadata": 2}


def test_what_is_missing_or_refused_is_told_and_can_be_mended(
    person: Person, tenant: Tenant, bundle: Path, data: Path
) -> None:
    person.go("/validations/new")
    person.choose("#files", bundle / "env-cls.pkl")
    person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 1")
    person.fill("[name=name]", "incomplete")
    person.click(SEND)
    assert person.text("#problem") == "env-metadata.json is missing: choose the bundle's folder, or its two files."
    person.choose("#files", bundle / "env-metadata.json")
    person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 2")
    # a file that changes between its digest and its sending is not what was announced
    person.tab.evaluate(
        "window.send = XMLHttpRequest.prototype.send;"
        "XMLHttpRequest.prototype.send = function () { window.send.call(this, 'other'); }"
    )
    person.click(SEND)
    person.reads("bytes", "#problem")
    assert tenant.http.get("/validations").json()["items"] == []
    person.tab.evaluate("XMLHttpRequest.prototype.send = window.send")
    person.follow(SEND)
    assert len(tenant.http.get("/validations").json()["items"]) == 1


def test_what_is_too_much_for_the_key_is_told(tab: Tab, plain_server: ServerProcess, bundle: Path) -> None:
    with plain_server.tenant(max_bytes=7) as tenant:
        person = Person.of(tab, tenant)
        person.go("/validations/new")
        person.choose("#files", bundle / "env-cls.pkl", bundle / "env-metadata.json")
        person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 2")
        person.fill("[name=name]", "too much")
        person.click(SEND)
        person.reads("more than the key may keep", "#problem")


def test_sending_can_be_stopped(person: Person, tenant: Tenant, bundle: Path) -> None:
    person.go("/validations/new")
    person.choose("#files", bundle / "env-cls.pkl", bundle / "env-metadata.json")
    person.tab.wait(f"document.querySelectorAll('{CHOSEN}').length === 2")
    person.fill("[name=name]", "stopped")
    # a connection that takes nothing
    person.tab.evaluate("XMLHttpRequest.prototype.send = () => {}; 0")
    person.tab.evaluate("XMLHttpRequest.prototype.abort = function () { this.dispatchEvent(new Event('abort')); }; 0")
    person.click(SEND)
    person.reads("sending", "#chosen")
    person.click("#stop")
    person.reads("Stopped.", "#problem")
    assert tenant.server.database.read_now(count_uploads, tenant.id) == 0
    assert tenant.http.get("/validations").json()["items"] == []
    assert not person.tab.evaluate(f"document.querySelector('{SEND}').disabled")


def test_digests_are_those_of_the_standard(person: Person) -> None:
    sizes = [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 70_000]
    person.go("/validations/new")
    script = person.tab.evaluate("document.querySelector('link[href$=\"digest.js\"]').href")
    found = person.tab.evaluate(
        f"""import({json.dumps(script)}).then(async ({{ Sha256, digestOf }}) => {{
            const made = [];
            for (const size of {sizes}) {{
                const bytes = Uint8Array.from({{ length: size }}, (_, i) => i * 7 % 256);
                const pieces = new Sha256();
                for (let at = 0; at < size; at += 37) pieces.update(bytes.subarray(at, at + 37));
                made.push([new Sha256().update(bytes).hex(), pieces.hex(), await digestOf(new File([bytes], 'x'))]);
            }}
            return made;
        }})"""
    )
    expected = [hashlib.sha256(bytes(i * 7 % 256 for i in range(size))).hexdigest() for size in sizes]
    assert found == [[digest] * 3 for digest in expected]
