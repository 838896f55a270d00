class VerifierResult:
    rewards: dict[str, float | int] | None
