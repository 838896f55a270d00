"""Options of the command line about packages, which most commands share."""

from __future__ import annotations

import argparse

from runner.provision import ExtraIndex, ProvisionOptions


def provision_options(arguments: argparse.Namespace) -> ProvisionOptions:
    """Turn parsed arguments into options.

    Raises:
        UsageError: one of them cannot be meant.
    """
    return ProvisionOptions(
        index_url=arguments.index_url,
        extra_indexes=tuple(map(ExtraIndex.parse, arguments.extra_index)),
        find_links=tuple(arguments.find_links),
        only_binary=arguments.only_binary,
        offline=arguments.offline,
        exclude_newer=arguments.exclude_newer,
        prerelease=arguments.prerelease,
        locked=getattr(arguments, "locked", False),
        installer=arguments.installer,
        sandbox=arguments.sandbox or "auto",
        file_hosts=tuple(arguments.file_host),
    )
