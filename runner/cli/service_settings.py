"""Settings of a service as its commands have them: from a file, variables, and their options."""

from __future__ import annotations

import argparse
import os
from typing import Final

from runner.cli.console import say
from runner.errors import SettingsError, UsageError
from runner.service.configuration import read_settings
from runner.service.settings import Settings

_OPTIONS: Final = {
    "host": "server.host",
    "port": "server.port",
    "public_url": "server.public_url",
    "data": "server.data",
    "database": "database.url",
    "blobs": "blobs.url",
    "executors": "executors.count",
    "insecure_sandbox": "executors.insecure_sandbox",
    "model": "model.name",
    "base_url": "model.base_url",
    "api_key_env": "model.api_key_env",
}


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings that a command line means.

    Raises:
        UsageError: something of them cannot be meant; where it is more than one thing, each was said in a line.
    """
    options = {
        place: (f"--{name.replace('_', '-')}", value)
        for name, place in _OPTIONS.items()
        if (value := getattr(arguments, name, None)) is not None
    }
    try:
        return read_settings(arguments.config, os.environ, options)
    except SettingsError as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems:
            say(problem)
        raise UsageError(
            f"{len(error.problems)} settings of the service are wrong.", hint="Each is named above."
        ) from error
