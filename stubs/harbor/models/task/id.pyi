from pathlib import Path

class GitTaskId:
    git_url: str
    git_commit_id: str | None
    path: Path

class LocalTaskId:
    path: Path

class PackageTaskId:
    org: str
    name: str
    ref: str | None
