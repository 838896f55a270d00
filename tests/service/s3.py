"""An S3 server over real HTTP for the tests of one session: made when it is first needed, gone with who tests.

`s3` is the fixture. Run as a program, it serves until its standard input ends.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

PATIENCE_S = 60.0
ENVIRON = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_REGION": "us-east-1"}


@dataclass
class Bucket:
    """A new bucket.

    Args:
        port: Of the server, on the loopback interface.
        name: Its name.
        url: As the service takes it.
    """

    port: int
    name: str
    url: str

    def keys(self) -> list[str]:
        """Names of everything in it."""
        import re

        return re.findall("<Key>([^<]*)</Key>", self._ask("GET", f"/{self.name}?list-type=2").decode())

    def put(self, key: str, data: bytes) -> None:
        """Put something there behind the service's back."""
        self._ask("PUT", f"/{self.name}/{key}", data)

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        return ask(self.port, method, path, body)


class S3:
    """A running server.

    Args:
        port: Where, on the loopback interface.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._numbers = count()

    def bucket(self) -> Bucket:
        """Make a bucket."""
        name = f"bucket-{next(self._numbers)}"
        ask(self.port, "PUT", f"/{name}", b"")
        return Bucket(self.port, name, f"s3://{name}/below?endpoint=http://127.0.0.1:{self.port}&region=us-east-1")


def ask(port: int, method: str, path: str, body: bytes) -> bytes:
    """Ask the server without any library, so that no connection is left."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        # it reads the kind of service from the signature's scope and does not check the rest
        scope = "Credential=testing/20260101/us-east-1/s3/aws4_request"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status < 300, (answer.status, data)
        return data
    finally:
        connection.close()


@contextmanager
def running() -> Iterator[S3]:
    """Run a server."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield S3(int(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server of this session's own."""
    with running() as server:
        yield server


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
