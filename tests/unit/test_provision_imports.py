"""Looking for a cached venv does not pay for what only a build needs."""

from __future__ import annotations

import subprocess
import sys


def test_importing_provision_leaves_heavy_libraries_out() -> None:
    code = "import runner.provision, sys; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(output.split())
    for name in ("virtualenv", "python_discovery", "platformdirs", "openai", "httpx", "cloudpickle", "uv"):
        assert name not in loaded
