"""Nothing of the caller's shell or folder, and no package's code, has a say in how a venv comes out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from runner.errors import IndexUnreachableError, RequirementError
from runner.provision import Cache, ProvisionEvent, ProvisionOptions, compile_modules, provision_packages
from tests.integration.local_index import LocalIndex

Family = Literal["uv", "pip"]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("installer", ["uv", "pip"])]

DEAD = "http://127.0.0.1:9/simple"


async def test_callers_variables_change_nothing(
    index: LocalIndex, cache: Cache, installer: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    marker = tmp_path / "ran"
    (planted / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    (planted / "json.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    for name, value in {
        "PIP_INDEX_URL": DEAD,
        "PIP_CONFIG_FILE": str(planted / "pip.conf"),
        "PIP_REQUIREMENT": "/nonexistent",
        "PIP_PRE": "1",
        "PIP_TARGET": str(planted),
        "UV_DEFAULT_INDEX": DEAD,
        "UV_INDEX_URL": DEAD,
        "UV_PRERELEASE": "allow",
        "UV_PYTHON": "/nonexistent",
        "UV_CONSTRAINT": "/nonexistent",
        "PYTHONPATH": str(planted),
        "PYTHONHOME": str(planted),
        "VIRTUAL_ENV": str(planted),
        "VIRTUALENV_SYSTEM_SITE_PACKAGES": "1",
        "CONDA_PREFIX": str(planted),
    }.items():
        monkeypatch.setenv(name, value)
    (planted / "pip.conf").write_text(f"[global]\nindex-url = {DEAD}\n")
    index.add("pack", "1.0")
    index.add("pack", "2.0rc1")
    venv = await provision_packages(
        ["pack"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.packages == {"pack": "1.0"}
    assert "include-system-site-packages = false" in (venv.path / "pyvenv.cfg").read_text()
    assert not marker.exists()


async def test_working_folder_changes_nothing(
    index: LocalIndex, cache: Cache, installer: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".python-version").write_text("3.99\n")
    (project / "uv.toml").write_text(f'[[index]]\nurl = "{DEAD}"\ndefault = true\n')
    (project / "pyproject.toml").write_text(
        '[project]\nname = "near"\nversion = "1"\nrequires-python = ">=3.99"\n'
        '[tool.uv]\nno-index = true\noverride-dependencies = ["pack==0.1"]\n'
        f'[[tool.uv.index]]\nurl = "{DEAD}"\ndefault = true\n'
    )
    (project / "json.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(project)
    index.add("pack", "1.0")
    venv = await provision_packages(
        ["pack"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    assert venv.packages == {"pack": "1.0"}


async def test_no_package_code_runs_while_a_venv_is_made(
    index: LocalIndex, cache: Cache, installer: Family, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    plant = f"import pathlib; pathlib.Path({str(marker)!r}).write_text('')\n"
    index.add("starter", "1.0", files={"starter_hook.pth": plant, "sitecustomize.py": plant})
    index.add("msgspec", "1.0", files={"msgspec_part.py": plant})
    venv = await provision_packages(
        ["starter", "msgspec"],
        cache=cache,
        options=ProvisionOptions(index_url=index.url, installer=installer),
    )
    # compiled, too
    (module,) = venv.path.rglob("msgspec_part.py")
    assert await compile_modules(venv, [module.relative_to(venv.path).as_posix()]) == 1
    assert list(venv.path.rglob("msgspec_part.*.pyc"))
    assert not marker.exists()
    subprocess.run([venv.python, "-c", ""], check=True, env={})
    assert marker.exists(), "the trap itself must work"


async def test_credentials_of_the_index_stay_out_of_everything_kept_or_said(
    cache: Cache, installer: Family, tmp_path: Path
) -> None:
    user, password = "token-zqx-4711", "pass:zqx/0815"
    events: list[ProvisionEvent] = []

    def heard(event: ProvisionEvent) -> None:
        events.append(event)

    with LocalIndex(tmp_path / "index", credentials=(user, password)) as index:
        index.add("pack", "1.0")
        url = index.url_with_credentials
        venv = await provision_packages(
            ["pack"], cache=cache, options=ProvisionOptions(index_url=url, installer=installer), on_event=heard
        )
        assert venv.packages == {"pack": "1.0"}
        with pytest.raises(RequirementError) as unknown:
            await provision_packages(
                ["absent"], cache=cache, options=ProvisionOptions(index_url=url, installer=installer), on_event=heard
            )
        wrong, other = url.replace("0815", "zqx-0816"), Cache(tmp_path / "other")
        with pytest.raises(IndexUnreachableError, match="refuses access") as refused:
            await provision_packages(
                ["pack"], cache=other, options=ProvisionOptions(index_url=wrong, installer=installer), on_event=heard
            )
    # the installers' own caches are theirs; a worker sees venvs only
    kept = [
        path for path in cache.root.rglob("*") if path.relative_to(cache.root).parts[0] not in ("uv", "pip", "tools")
    ]
    texts = [path.read_bytes().decode("utf-8", "replace") for path in kept if path.is_file()]
    texts += [repr(events), repr(venv)]
    texts += [f"{error.value!s} {error.value.detail}" for error in (unknown, refused)]
    assert not [text for text in texts if "zqx" in text]


async def test_build_sees_an_environment_made_from_empty(
    index: LocalIndex, cache: Cache, installer: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    backend = (
        "import os, pathlib\n"
        "def build_wheel(directory, settings=None, metadata=None):\n"
        f"    pathlib.Path({str(seen)!r}).write_text(repr(dict(os.environ)))\n"
        "    raise SystemExit(1)\n"
    )
    monkeypatch.setenv("CALLERS_API_KEY", "sk-very-secret")
    monkeypatch.setenv("https_proxy", "")
    index.add_sdist("nosy", "1.0", backend)
    with pytest.raises(Exception, match="nosy"):
        await provision_packages(
            ["nosy"],
            cache=cache,
            # so that the build can say what it sees
            options=ProvisionOptions(index_url=index.url, installer=installer, sandbox="off"),
        )
    environment = seen.read_text()
    assert "sk-very-secret" not in environment
    assert f"'HOME': '{cache.root}" in environment
    assert os.environ["HOME"] not in environment.replace(str(tmp_path), "")
