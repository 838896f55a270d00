"""The first messages between the caller and a worker: what it is told, and what it has to say of itself.

Comes in: a `Launch` and the worker's hello. Goes out: the load message. Refuses, as `FrameError`, a worker of another
protocol, or of another series of Python or benchmax than its bundle's.
"""

from __future__ import annotations

from benchmax.bundle import BundleMetadata
from runner.errors import FrameError, IncompatibleBundleError
from runner.launch import Launch
from runner.protocol import PROTOCOL, Hello, Load
from runner.provision.plan import series_of


def load_message(launch: Launch, bindings: list[str]) -> Load:
    """Return the message that has a worker load its bundle and construct its environment.

    Args:
        launch: What the worker is made of.
        bindings: Names to bind for the constructor.
    """
    limits = launch.limits
    return Load(
        protocol=PROTOCOL,
        metadata=launch.metadata.to_json_bytes(),
        bindings=bindings,
        rollout_log_bytes=limits.rollout_log_bytes,
        transcript_bytes=limits.transcript_bytes,
        dataset_examples=limits.dataset_examples,
        dataset_bytes=limits.dataset_bytes,
        stall_s=limits.stall_s,
    )


def check_hello(hello: Hello, metadata: BundleMetadata) -> None:
    """Compare what a worker says of itself with what its bundle was made for.

    Raises:
        FrameError: it speaks another protocol, or runs another series of Python or benchmax.
    """
    expected = (PROTOCOL, metadata.python_version, series_of(metadata.benchmax_version))
    found = (hello.protocol, hello.python, _series_of(hello.benchmax))
    if found != expected:
        form = "protocol {} on Python {} with benchmax {}"
        raise FrameError(f"the worker speaks {form.format(*found)}, expected {form.format(*expected)}")


def _series_of(version: str) -> str:
    """The series of a version, or what is said in its place if it is none."""
    try:
        return series_of(version)
    except IncompatibleBundleError:
        return repr(version)
