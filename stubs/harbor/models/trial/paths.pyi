from pathlib import Path

class TrialPaths:
    trial_dir: Path
