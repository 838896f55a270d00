"""What the commands of the service accept: `serve`, `executor`, `keys` and `submit`."""

from __future__ import annotations

import argparse
from pathlib import Path

from runner.cli.syntax import Commands, Parser, age, common, count, seconds, size

SCOPES = ("submit", "read", "models", "admin")


def add_serve(commands: Commands[Parser]) -> None:
    """Add `benchmax serve`."""
    parser = commands.add_parser(
        "serve",
        help="run the validation service on this machine",
        description="Run the validation service: an HTTP server, and executors that run what is uploaded to it.",
        epilog="Options win over BENCHMAX_SERVE_… variables, and these over --config. SIGTERM ends it in order.",
        allow_abbrev=False,
    )
    server = parser.add_argument_group("server")
    server.add_argument("--host", metavar="HOST", help="address to listen at (default: 127.0.0.1)")
    server.add_argument("--port", metavar="P", type=int, help="port to listen at; 0 takes a free one (default: 8321)")
    server.add_argument("--public-url", metavar="URL", help="the service's URL for its clients, behind a proxy")
    _settings(parser)
    work = parser.add_argument_group("executors")
    work.add_argument("--executors", metavar="N", type=int, help="executors to start beside the server (default: 1)")
    _work(parser, work)
    common(parser)


def add_executor(commands: Commands[Parser]) -> None:
    """Add `benchmax executor`."""
    parser = commands.add_parser(
        "executor",
        help="run what is uploaded to a service, on this or another machine",
        description="Take jobs of a service from its database and run them, one at a time, until SIGTERM.",
        epilog="It is given the settings of the server: its --config, or its BENCHMAX_SERVE_… variables. On another "
        "machine the database is PostgreSQL and the blob store is S3.",
        allow_abbrev=False,
    )
    _settings(parser)
    _work(parser, parser.add_argument_group("isolation"))
    common(parser)


def add_keys(commands: Commands[Parser]) -> None:
    """Add `benchmax keys`."""
    parser = commands.add_parser(
        "keys",
        help="make, list and revoke API keys of a service",
        description="Make, list and revoke API keys of a service, in its database: for whoever runs it.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    create = actions.add_parser(
        "create",
        help="make a key; its secret is shown once",
        description="Make a key. Its secret goes to standard output, and is shown nowhere else and never again.",
        allow_abbrev=False,
    )
    create.add_argument("name", metavar="NAME", help="whose or what for, such as ci")
    create.add_argument(
        "--tenant", metavar="TENANT", default="default", help="whose things it sees (default: default); made if new"
    )
    create.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        choices=SCOPES,
        default=[],
        help=f"what it may do: {', '.join(SCOPES)} (default: all but admin); may be given more than once",
    )
    create.add_argument("--expires", metavar="AGE", type=age, help="how long it is good, such as 30d (default: always)")
    quotas = create.add_argument_group("quotas", "the settings of the service say what they are by default")
    quotas.add_argument("--max-bytes", metavar="SIZE", type=size, help="uploads that are kept, such as 10GB")
    quotas.add_argument("--max-jobs", metavar="N", type=count, help="jobs that are not over")
    quotas.add_argument("--max-running", metavar="N", type=count, help="jobs that run at the same time")
    quotas.add_argument("--requests-per-minute", metavar="N", type=count, help="requests per minute")
    listing = actions.add_parser(
        "list",
        help="list the keys, without their secrets",
        description="List the keys, without their secrets, and what they use.",
        allow_abbrev=False,
    )
    revoke = actions.add_parser(
        "revoke",
        help="make a key worthless",
        description="Make a key worthless, at once and for good.",
        allow_abbrev=False,
    )
    revoke.add_argument("id", metavar="ID", help="the key's id, as `benchmax keys list` shows it")
    for action in (create, listing, revoke):
        _settings(action, blobs=False)
        common(action)


def add_submit(commands: Commands[Parser]) -> None:
    """Add `benchmax submit`."""
    parser = commands.add_parser(
        "submit",
        help="have an artifact validated by a service",
        description="Upload an artifact to a service, follow its validation there, and show the verdict as "
        "`benchmax validate` does.",
        epilog="Exit code 0: it is valid; 1: it is not; 3: it could not be judged. Ctrl-C cancels the validation.",
        allow_abbrev=False,
    )
    parser.add_argument("dir", metavar="DIR", type=Path, nargs="?", help="folder of the artifact")
    parser.add_argument("--data", metavar="PATH", type=Path, help="dataset folder to upload (default: none)")
    parser.add_argument("--name", metavar="NAME", help="what to call it there (default: the folder's name)")
    server = parser.add_argument_group("service")
    server.add_argument("--server", metavar="URL", help="the service's URL (default: BENCHMAX_SERVER)")
    server.add_argument(
        "--key-env", metavar="VAR", default="BENCHMAX_KEY", help="variable that holds the key (default: BENCHMAX_KEY)"
    )
    server.add_argument("--detach", action="store_true", help="do not wait for the verdict; print the validation's id")
    server.add_argument("--attach", metavar="ID", help="follow a validation that was submitted before")
    how = parser.add_argument_group("validation")
    how.add_argument("--model", metavar="NAME", help="one of the service's models (default: its own choice)")
    how.add_argument("--split", choices=["train", "eval"], help="dataset split (default: eval)")
    how.add_argument("--timeout", metavar="S", type=seconds, help="seconds per rollout (default: 120)")
    how.add_argument("--max-context-tokens", metavar="N", type=count, help="tokens of one rollout (default: 2048)")
    output = parser.add_argument_group("output")
    output.add_argument("--json-out", metavar="FILE", type=Path, help="write the verdict as JSON to a file too")
    output.add_argument("--report", metavar="FILE", type=Path, help="write the verdict as a page, to open in a browser")
    common(parser)


def _settings(parser: argparse.ArgumentParser, *, blobs: bool = True) -> None:
    group = parser.add_argument_group("settings of the service")
    group.add_argument("--config", metavar="FILE", type=Path, help="settings as TOML (default: BENCHMAX_SERVE_CONFIG)")
    group.add_argument("--data", metavar="DIR", type=Path, help="folder for what has no URL of its own")
    group.add_argument("--database", metavar="URL", help="sqlite:///FILE or postgresql://…")
    if blobs:
        group.add_argument("--blobs", metavar="URL", help="file:///FOLDER or s3://BUCKET/PREFIX?…")


def _work(parser: argparse.ArgumentParser, group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--insecure-sandbox",
        action="store_true",
        default=None,
        help="go on where the sandbox that uploads need cannot be had: they can then read and change this machine",
    )
    model = parser.add_argument_group("model")
    model.add_argument("--model", metavar="NAME", help="mock (default), mock:SCRIPT, local; or any, with --base-url")
    model.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, including /v1")
    model.add_argument("--api-key-env", metavar="VAR", help="variable that holds the key for --base-url")
