"""Pack an environment class into a portable artifact, and load it again.

A bundle is a pickle of `(environment class, constructor arguments)` plus metadata that can be read without touching
the pickle. Importing this module loads neither cloudpickle nor `benchmax.envs`; packing and loading do. What packs is
loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

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


def __getattr__(name: str) -> object:
    if name not in ("dump_bundle", "unregistered_local_refs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from benchmax.bundle import dumping

    for function in (dumping.dump_bundle, dumping.unregistered_local_refs):
        function.__module__ = __name__
        globals()[function.__name__] = function
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), "dump_bundle", "unregistered_local_refs"})
