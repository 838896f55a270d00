"""Run a bundle that somebody else made, without trusting it and without sharing packages with it.

`isolate(bundle)` gives an `Environment` whose code runs in a venv and a process of its own. Importing this package
loads neither an HTTP stack nor cloudpickle.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.artifact import Artifact, read_artifact, write_artifact
    from runner.broker import AuditCount, AuditEntry, Binding
    from runner.errors import (
        ArtifactError,
        BuildError,
        CacheError,
        ClientError,
        ConflictError,
        CredentialSourceError,
        DatabaseError,
        DatasetError,
        EndpointError,
        FrameError,
        HeaderLimitError,
        HeadersRefusedError,
        IncompatibleBundleError,
        IndexUnreachableError,
        InstallTimeoutError,
        InterpreterNotFoundError,
        KeyRefusedError,
        LeaseLostError,
        NotFoundError,
        ProvisionError,
        QuotaError,
        RemoteError,
        RequirementError,
        RestartsUsedUpError,
        RunnerError,
        SandboxUnavailableError,
        ServiceBusyError,
        ServiceError,
        ServiceFaultError,
        ServiceRefusedError,
        ServiceUnreachableError,
        SettingsError,
        UsageError,
        WorkerEnd,
        WorkerError,
        WorkerLostError,
        WorkerStartError,
    )
    from runner.gateway.exchange import Answer, CallTrace, Exchange, ModelCall, Upstream, UpstreamError, Usage
    from runner.gateway.findings import Finding
    from runner.isolated import IsolatedEnvironment
    from runner.isolating import isolate
    from runner.limits import Limits
    from runner.provision.options import ExtraIndex, ProvisionOptions
    from runner.record import (
        LogLine,
        OutputEvent,
        PhaseEvent,
        RecordEvent,
        RolloutRecord,
        RolloutsEndedEvent,
        StallEvent,
        UnreachableEvent,
        WorkerEvent,
    )
    from runner.validation.plan import ValidationPlan
    from runner.validation.validating import validate
    from runner.validation.verdict import Verdict

_HOMES = {
    "runner.artifact": ("Artifact", "read_artifact", "write_artifact"),
    "runner.broker": ("AuditCount", "AuditEntry", "Binding"),
    "runner.errors": (
        "ArtifactError",
        "BuildError",
        "CacheError",
        "ClientError",
        "ConflictError",
        "CredentialSourceError",
        "DatabaseError",
        "DatasetError",
        "EndpointError",
        "FrameError",
        "HeaderLimitError",
        "HeadersRefusedError",
        "IncompatibleBundleError",
        "IndexUnreachableError",
        "InstallTimeoutError",
        "InterpreterNotFoundError",
        "KeyRefusedError",
        "LeaseLostError",
        "NotFoundError",
        "ProvisionError",
        "QuotaError",
        "RemoteError",
        "RequirementError",
        "RestartsUsedUpError",
        "RunnerError",
        "SandboxUnavailableError",
        "ServiceBusyError",
        "ServiceError",
        "ServiceFaultError",
        "ServiceRefusedError",
        "ServiceUnreachableError",
        "SettingsError",
        "UsageError",
        "WorkerEnd",
        "WorkerError",
        "WorkerLostError",
        "WorkerStartError",
    ),
    "runner.gateway.exchange": ("Answer", "CallTrace", "Exchange", "ModelCall", "Upstream", "UpstreamError", "Usage"),
    "runner.gateway.findings": ("Finding",),
    "runner.isolated": ("IsolatedEnvironment",),
    "runner.isolating": ("isolate",),
    "runner.limits": ("Limits",),
    "runner.provision.options": ("ExtraIndex", "ProvisionOptions"),
    "runner.record": (
        "LogLine",
        "OutputEvent",
        "PhaseEvent",
        "RecordEvent",
        "RolloutRecord",
        "RolloutsEndedEvent",
        "StallEvent",
        "UnreachableEvent",
        "WorkerEvent",
    ),
    "runner.validation.plan": ("ValidationPlan",),
    "runner.validation.validating": ("validate",),
    "runner.validation.verdict": ("Verdict",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Artifact",
    "ArtifactError",
    "AuditCount",
    "AuditEntry",
    "Binding",
    "BuildError",
    "CacheError",
    "CallTrace",
    "ClientError",
    "ConflictError",
    "CredentialSourceError",
    "DatabaseError",
    "DatasetError",
    "EndpointError",
    "Exchange",
    "ExtraIndex",
    "Finding",
    "FrameError",
    "HeaderLimitError",
    "HeadersRefusedError",
    "IncompatibleBundleError",
    "IndexUnreachableError",
    "InstallTimeoutError",
    "InterpreterNotFoundError",
    "IsolatedEnvironment",
    "KeyRefusedError",
    "LeaseLostError",
    "Limits",
    "LogLine",
    "ModelCall",
    "NotFoundError",
    "OutputEvent",
    "PhaseEvent",
    "ProvisionError",
    "ProvisionOptions",
    "QuotaError",
    "RecordEvent",
    "RemoteError",
    "RequirementError",
    "RestartsUsedUpError",
    "RolloutRecord",
    "RolloutsEndedEvent",
    "RunnerError",
    "SandboxUnavailableError",
    "ServiceBusyError",
    "ServiceError",
    "ServiceFaultError",
    "ServiceRefusedError",
    "ServiceUnreachableError",
    "SettingsError",
    "StallEvent",
    "UnreachableEvent",
    "Upstream",
    "UpstreamError",
    "Usage",
    "UsageError",
    "ValidationPlan",
    "Verdict",
    "WorkerEnd",
    "WorkerError",
    "WorkerEvent",
    "WorkerLostError",
    "WorkerStartError",
    "isolate",
    "read_artifact",
    "validate",
    "write_artifact",
]


def __getattr__(name: str) -> object:
    """Load a public name's module when it is first used."""
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
