from pathlib import Path

class Packager:
    @staticmethod
    def compute_content_hash(task_dir: Path) -> tuple[str, list[Path]]: ...
