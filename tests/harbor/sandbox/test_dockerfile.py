"""What of a Dockerfile is honoured without a build, and what is named as beyond that."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmax.envs.harbor.dockerfile import Copy, Recipe, is_plain, read_dockerfile


def recipe(tmp_path: Path, text: str) -> Recipe:
    (tmp_path / "Dockerfile").write_text(text)
    return read_dockerfile(tmp_path / "Dockerfile")


def test_what_needs_no_build_is_honoured(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        """
        # a comment
        ARG VERSION=3.12
        FROM --platform=linux/amd64 python:${VERSION}-slim
        ENV HOME_OF=/srv GREETING="good day"
        ENV OLD the rest of the line
        WORKDIR $HOME_OF/app
        WORKDIR data
        COPY --chown=ada:ada --chmod=640 a.txt b.txt ./
        COPY ["with space.txt", "/etc/x.conf"]
        COPY . .
        ADD plain.csv /srv/plain.csv
        VOLUME /cache
        USER ada:users
        EXPOSE 80
        LABEL a=b \\
              c=d
        HEALTHCHECK CMD true
        CMD ["sleep", "1"]
        """,
    )
    assert found == Recipe(
        image="python:3.12-slim",
        workdir="/srv/app/data",
        variables={"HOME_OF": "/srv", "GREETING": "good day", "OLD": "the rest of the line"},
        user="ada",
        folders=["/srv/app", "/srv/app/data", "/cache"],
        copies=[
            Copy(("a.txt", "b.txt"), "/srv/app/data/", "ada", 0o640),
            Copy(("with space.txt",), "/etc/x.conf"),
            Copy((".",), "/srv/app/data/"),
            Copy(("plain.csv",), "/srv/plain.csv"),
        ],
    )


@pytest.mark.parametrize(
    "instruction",
    [
        "RUN apt-get update",
        "COPY --from=builder /x /y",
        "COPY --parents a b",
        "COPY <<EOF /y\nUSER nobody\nEOF",
        "RUN <<-'ONE' <<TWO\nUSER nobody\n\tONE\nWORKDIR /x\n ONE\nTWO",
        "COPY only-one",
        "COPY ../outside /y",
        "ADD https://example.com/x /y",
        "ADD pieces.tar.gz /y",
        "ENV NAME",
        "WORKDIR ${NAME:+other}",
        'COPY "unclosed /y',
        "ONBUILD RUN true",
        "SOMETHING else",
    ],
)
def test_what_would_change_the_image_is_named_with_its_file_and_line(tmp_path: Path, instruction: str) -> None:
    found = recipe(tmp_path, f"FROM debian\n\n# why\n{instruction}\nWORKDIR /app\n")
    assert found.beyond == [f"Dockerfile:4: {instruction.splitlines()[0]}"]
    assert (found.workdir, found.user) == ("/app", None)


def test_an_instruction_over_several_lines_is_named_by_its_first_and_shortened(tmp_path: Path) -> None:
    found = recipe(tmp_path, "FROM debian\nRUN apt-get update && \\\n  # in between\n  apt-get install -y " + "x" * 500)
    (named,) = found.beyond
    assert named.startswith("Dockerfile:2: RUN apt-get update && apt-get install -y xxx")
    assert len(named) < 150


def test_instructions_are_found_however_they_are_written(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "\ufeff# escape=`\n"
        "arg TAG=3.12\n"
        "From\tpython:$TAG  as  only\n"
        "env A=1 `  \n"
        "  # in between\n"
        "\n"
        "    B=2\n"
        "workdir\t/app$TAG\n"
        "arg TAG\n"
        "WorkDir /app/$TAG\n"
        "copy  a.txt  b<<c.txt  /srv/\n"
        "user ada",
    )
    assert found == Recipe(
        image="python:3.12",
        workdir="/app/3.12",
        variables={"A": "1", "B": "2"},
        user="ada",
        # what is said before the first stage is not known in it, unless it asks
        folders=["/app", "/app/3.12"],
        copies=[Copy(("a.txt", "b<<c.txt"), "/srv/")],
    )


def test_of_several_stages_the_last_one_counts_and_what_it_begins_with(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        "FROM debian AS base\nWORKDIR /base\nENV A=1\n"
        "FROM node:22 AS builder\nWORKDIR /build\nUSER node\nRUN npm ci\n"
        "FROM Base\nENV B=2\nCOPY --from=builder /build /app\n",
    )
    assert found == Recipe(
        image="debian",
        workdir="/base",
        variables={"A": "1", "B": "2"},
        folders=["/base"],
        beyond=[
            "Dockerfile:4: FROM node:22 AS builder",
            "Dockerfile:7: RUN npm ci",
            "Dockerfile:8: FROM Base",
            "Dockerfile:10: COPY --from=builder /build /app",
        ],
    )


@pytest.mark.parametrize(
    ("image", "plain"),
    [
        ("debian", True),
        ("ubuntu:24.04", True),
        ("python:3.13-slim@sha256:0123", True),
        ("docker.io/library/debian:bookworm", True),
        ("node:22", False),
        ("scratch", False),
        ("ghcr.io/somebody/python:3.13", False),
        ("localhost:5000/debian", False),
    ],
)
def test_a_plain_image_is_a_usual_system_from_dockers_own_library(image: str, plain: bool) -> None:
    assert is_plain(image) is plain
