"""What a run found, as one versioned value, and its views."""

from runner.report.model_calls import FindingFacts, KindOfFinding, ModelUseFacts
from runner.report.value import (
    FORMAT,
    BundleFacts,
    DatasetFacts,
    EndpointFacts,
    GroupFacts,
    HeaderCountFacts,
    HeaderFacts,
    LogFacts,
    ModelFacts,
    OutcomeFacts,
    RefusalFacts,
    Report,
    SandboxFacts,
    VenvFacts,
    header_facts,
    outcome_facts,
)

__all__ = [
    "FORMAT",
    "BundleFacts",
    "DatasetFacts",
    "EndpointFacts",
    "FindingFacts",
    "GroupFacts",
    "HeaderCountFacts",
    "HeaderFacts",
    "KindOfFinding",
    "LogFacts",
    "ModelFacts",
    "ModelUseFacts",
    "OutcomeFacts",
    "RefusalFacts",
    "Report",
    "SandboxFacts",
    "VenvFacts",
    "header_facts",
    "outcome_facts",
]
