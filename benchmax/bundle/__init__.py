"""Pack an environment class into a portable artifact, and load it again.

A bundle is a pickle of `(environment class, constructor arguments)` plus metadata that can be read without touching
the pickle. Importing this module loads neither cloudpickle nor `benchmax.envs`; packing and loading do. What packs is
loaded when it is first asked for.
"""

import importlib
from typing import TYPE_CHECKING, Final

from benchmax.bundle.compatibility import validate_bundle_compatibility as validate_bundle_compatibility
from benchmax.bundle.digest import Bundle as Bundle
from benchmax.bundle.digest import bundle_digest as bundle_digest
from benchmax.bundle.errors import BundlingError as BundlingError
from benchmax.bundle.errors import IncompatibleBenchmaxError as IncompatibleBenchmaxError
from benchmax.bundle.errors import IncompatiblePythonError as IncompatiblePythonError
from benchmax.bundle.errors import IncompatibleRuntimeError as IncompatibleRuntimeError
from benchmax.bundle.loading import load_bundle as load_bundle
from benchmax.bundle.metadata import BundleMetadata as BundleMetadata

if TYPE_CHECKING:
    from benchmax.bundle.dumping import dump_bundle as dump_bundle
    from benchmax.bundle.dumping import unregistered_local_refs as unregistered_local_refs
    from benchmax.bundle.findings.examining import examine as examine
    from benchmax.bundle.findings.finding import Finding as Finding
    from benchmax.bundle.findings.finding import Report as Report

# other releases have this as one module; pickles must name what exists there
for _public in (
    Bundle,
    BundleMetadata,
    BundlingError,
    IncompatibleBenchmaxError,
    IncompatiblePythonError,
    IncompatibleRuntimeError,
    bundle_digest,
    load_bundle,
    validate_bundle_compatibility,
):
    _public.__module__ = __name__


_LATER: Final = {
    "dump_bundle": "benchmax.bundle.dumping",
    "unregistered_local_refs": "benchmax.bundle.dumping",
    "examine": "benchmax.bundle.findings.examining",
    "Finding": "benchmax.bundle.findings.finding",
    "Report": "benchmax.bundle.findings.finding",
}
"""What packs, and the module that has it: who only loads bundles does not wait for it."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for public, module in _LATER.items():
        if module == _LATER[name]:
            found = getattr(importlib.import_module(module), public)
            found.__module__ = __name__
            globals()[public] = found
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
