"""The description of the API is complete, and what it says is so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.http.servers import ServerProcess

OPEN = {"/healthz", "/readyz", "/metrics", "/api/v1/uploads/{upload_id}/content"}
"""Paths that take no key."""


@pytest.fixture(scope="module")
def description(plain_server: ServerProcess) -> dict[str, Any]:
    return dict(plain_server.get("/openapi.json").json())


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_operation_has_its_errors_its_key_and_words(description: dict[str, Any]) -> None:
    seen = 0
    for path, _, operation in operations(description):
        seen += 1
        assert operation["description"]
        assert operation["tags"]
        answers = operation["responses"]
        assert {"400", "408", "413", "429", "431", "500", "503"} <= answers.keys()
        for status, answer in answers.items():
            assert "X-Request-Id" in answer["headers"]
            if int(status) >= 400 and not (path == "/readyz" and status == "503"):
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorAnswer"}
        if path in OPEN:
            assert "security" not in operation
        else:
            assert operation["security"] == [{"key": []}]
            assert {"401", "403"} <= answers.keys()
        if "{" in path:
            assert {"404", "422"} <= answers.keys()
    assert seen == 19


def test_everything_that_is_sent_is_bounded(description: dict[str, Any]) -> None:
    for _, _, operation in operations(description):
        for parameter in operation.get("parameters", ()):
            for schema in kinds(parameter["schema"]):
                assert is_bounded(schema), parameter
    for name, schema in description["components"]["schemas"].items():
        if name.startswith("New") or name in ("ArtifactUploads", "DataFile", "ValidationOptions"):
            assert schema["additionalProperties"] is False
            for field in schema["properties"].values():
                for kind in kinds(field):
                    assert is_bounded(kind), (name, field)


def kinds(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [*schema["anyOf"]] if "anyOf" in schema else [schema]


def is_bounded(schema: dict[str, Any]) -> bool:
    if schema.get("type") == "string":
        return "pattern" in schema or "maxLength" in schema or "enum" in schema
    if schema.get("type") in ("integer", "number"):
        return bool({"minimum", "exclusiveMinimum"} & schema.keys()) and "maximum" in schema
    return schema.get("type") != "array" or "maxItems" in schema


def test_the_bounds_are_those_of_the_server(strict_server: ServerProcess) -> None:
    schemas = strict_server.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["NewUpload"]["properties"]["bytes"]["maximum"] == 1 << 20


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_whatever_is_sent_the_answer_is_as_described(plain_server: ServerProcess, tmp_path: Path) -> None:
    with plain_server.tenant() as tenant:
        result = subprocess.run(
            [
                Path(sys.executable).with_name("schemathesis"),
                f"--config-file={Path(__file__).with_name('schemathesis.toml')}",
                "run",
                f"{plain_server.url}/openapi.json",
                "--header",
                f"Authorization: Bearer {tenant.secret}",
                # all that the description says of values, and some by chance
                "--phases=coverage,fuzzing",
                "--max-examples=3",
                "--no-shrink",
                "--generation-deterministic",
                "--request-timeout=60",
                "--no-color",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert result.returncode == 0, result.stdout + result.stderr
    # with a key that is good until the end
    assert "Authentication failed" not in result.stdout
    assert not [line for line in plain_server.log() if line.get("status") == 500 or line["event"] == "failure"]
