from harbor.models.agent.context import AgentContext
from harbor.models.trial.config import TrialConfig
from harbor.models.verifier.result import VerifierResult

class ExceptionInfo:
    exception_type: str
    exception_message: str

class TrialResult:
    trial_name: str
    config: TrialConfig
    agent_result: AgentContext | None
    verifier_result: VerifierResult | None
    exception_info: ExceptionInfo | None
