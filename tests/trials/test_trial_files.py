"""Files of a trial sandbox: up and down, alone and as folders, with odd names, and with archives that lie."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from tests.trials.talking import RefusedError, Talk, archive_of


def member(name: str, kind: bytes, target: str = "", mode: int = 0o755) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def names_in(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {info.name: info for info in archive}


@pytest.fixture(autouse=True)
def empty(talk: Talk) -> None:
    talk.said("rm -rf /app; mkdir /app")


@pytest.mark.parametrize("name", ["plain", "with space", "-rf", "line\nbreak", "ünïcode", "a\udcffb", "x" * 255])
def test_a_file_comes_back_as_it_went_whatever_it_is_called(name: str, talk: Talk) -> None:
    content = os.urandom(300_000)
    talk.put(f"/app/deep/down/{name}", content, mode=0o751)
    assert talk.get(f"/app/deep/down/{name}") == content
    assert talk.said("find /app/deep/down -type f -printf '%m %U %G'") == "751 0 0"
    assert talk.type_of(f"/app/deep/down/{name}") == "file"


def test_an_empty_file_and_a_large_one(talk: Talk) -> None:
    large = os.urandom(1024 * 1024) * 20
    for content in (b"", large):
        talk.put("/app/file", content)
        assert talk.get("/app/file") == content


def test_types_are_told_with_links_followed(talk: Talk) -> None:
    talk.said("cd /app; mkdir folder; touch file; ln -s folder to-folder; ln -s nowhere broken; mkfifo pipe")
    found = {name: talk.type_of(f"/app/{name}") for name in ("folder", "file", "to-folder", "broken", "pipe", "file/x")}
    assert found == {
        "folder": "folder", "file": "file", "to-folder": "folder", "broken": None, "pipe": "other", "file/x": None,
    }  # fmt: skip


def test_an_upload_takes_the_place_of_a_link_and_writes_nothing_through_it(talk: Talk) -> None:
    talk.said("cd /app; echo kept > other; ln -s other file")
    talk.put("/app/file", b"new")
    assert talk.said("cd /app; cat other; cat file; test -L file || echo plain") == "kept\nnewplain"


def test_a_named_pipe_holds_no_download_up(talk: Talk) -> None:
    talk.said("mkfifo /app/pipe")
    with pytest.raises(RefusedError) as refused:
        talk.get("/app/pipe")
    assert refused.value.kind == "invalid"


def test_a_folder_goes_up_and_comes_down_with_modes_and_links(talk: Talk) -> None:
    talk.put(
        "/app/new",
        archive_of(
            {
                "closed": member("closed", tarfile.DIRTYPE, mode=0o500),
                "closed/run.sh": b"echo run\n",
                "link": member("link", tarfile.SYMTYPE, "closed/run.sh"),
                "same": member("same", tarfile.LNKTYPE, "closed/run.sh"),
                "without/its/folders": b"x",
            }
        ),
        kind="tar",
    )
    assert talk.said("cd /app/new; stat -c %a closed; sh link; cat without/its/folders") == "500\nrun\nx"
    talk.said("cd /app/new; mkfifo pipe; chmod 640 same; python3 -c 'import socket; socket.socket(1).bind(\"sock\")'")
    found = names_in(talk.get("/app/new", "tar"))
    assert {*found} == {"closed", "closed/run.sh", "link", "same", "without", "without/its", "without/its/folders"}
    assert (found["closed"].mode, found["same"].mode) == (0o500, 0o640)
    assert found["same"].isreg()
    assert (found["link"].issym(), found["link"].linkname) == (True, "closed/run.sh")


def test_a_folder_that_changes_while_it_is_fetched_is_an_archive_all_the_same(talk: Talk) -> None:
    change = "cd /app; while true; do seq 9000 > grow; : > grow; touch a b; rm -f a b; done"
    running = talk.ask(op="exec", command=change)
    try:
        for _ in range(20):
            assert "grow" in {*names_in(talk.get("/app", "tar")), "grow"}
    finally:
        talk.ask(op="cancel", of=running)
        talk.answer(running)


@pytest.mark.parametrize(
    "info",
    [
        member("../up", tarfile.REGTYPE),
        member("a/../../up", tarfile.SYMTYPE, "x"),
        member("hard", tarfile.LNKTYPE, "../../etc/passwd"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda info: info.name,
)
def test_an_archive_that_leads_elsewhere_is_refused(info: tarfile.TarInfo, talk: Talk) -> None:
    with pytest.raises(RefusedError) as refused:
        talk.put("/app/in", archive_of({"x": info}), kind="tar")
    assert refused.value.kind == "invalid"
    assert talk.said("ls -A /app; ls -A /app/in") == "in"


@pytest.mark.parametrize(
    "content", [b"no archive at all", b"\0" * 100, os.urandom(5000)], ids=["text", "zeros", "noise"]
)
def test_what_is_no_archive_is_said(content: bytes, talk: Talk) -> None:
    with pytest.raises(RefusedError):
        talk.put("/app/in", content, kind="tar")
    assert talk.said("echo on") == "on"


def test_an_upload_that_fails_is_read_to_its_end(talk: Talk) -> None:
    talk.put("/app/file", b"kept")
    with pytest.raises(RefusedError):
        talk.put("/app/file/below", b"x" * 5_000_000)
    with pytest.raises(RefusedError):
        talk.put("/app", b"x" * 5_000_000)
    assert talk.said("cat /app/file; ls -A /app") == "keptfile"
