"""What a run found, as one versioned value, and its views."""

from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    GroupFacts,
    HeaderFacts,
    LogFacts,
    ModelFacts,
    OutcomeFacts,
    RefusalFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    outcome_facts,
)

__all__ = [
    "FORMAT",
    "BundleFacts",
    "DatasetFacts",
    "GroupFacts",
    "HeaderFacts",
    "LogFacts",
    "ModelFacts",
    "OutcomeFacts",
    "RefusalFacts",
    "Report",
    "SandboxFacts",
    "VenvFacts",
    "outcome_facts",
]
