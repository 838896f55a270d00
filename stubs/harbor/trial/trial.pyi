from harbor.models.trial.config import TrialConfig
from harbor.models.trial.result import TrialResult

class Trial:
    config: TrialConfig
    @classmethod
    async def create(cls, config: TrialConfig) -> Trial: ...
    async def run(self) -> TrialResult: ...
