"""Guards A and B: source that a bundle still refers to by name, of its own project or of another folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bundle_lab import Lab, Project, env_module, new_project


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as started:
        yield started


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Project:
    return new_project(lab, tmp_path)


@pytest.fixture
def loose(lab: Lab, tmp_path: Path) -> Project:
    return new_project(lab, tmp_path, marked=False)


def install(project: Project, module: str, distribution: str, *, record: str | None = None) -> Path:
    """Write metadata that says an installed distribution owns a module; return its folder for the import path."""
    folder = project.root.parent / "metadata"
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    if record is None:
        # what setuptools writes, for editable installations too
        (info / "top_level.txt").write_text(module)
    (info / "RECORD").write_text(record or f"{info.name}/METADATA,,\n{info.name}/top_level.txt,,\n")
    return folder


def with_other_folder(project: Project, *, marked: bool = True) -> Path:
    """Give the project a module `shared` in a folder next to it, used by its environment."""
    other = project.root.parent / "other"
    project.path = [project.root, other]
    project.write({"shared.py": "def one():\n    return 1\n"}, under=other)
    if marked:
        project.write({"pyproject.toml": ""}, under=other)
    project.write({"envmod.py": env_module("from shared import one", answer="return one()")})
    return other


# guard A


def test_without_capture_every_local_module_is_missing(project: Project) -> None:
    project.write(
        {
            "helper.py": "def one():\n    return 1\n",
            "envmod.py": env_module("from helper import one", answer="return one()"),
        }
    )
    # the class is one name in its module; what else that needs shows once it goes by value
    text = project.refusal("auto_local_modules=False")
    assert "missing local_modules=[envmod]" in text
    assert "Already registered" not in text
    assert str(project.root / "envmod.py") in text
    assert "Env" in text


def test_without_capture_registered_modules_are_listed_and_missing_ones_sorted(project: Project) -> None:
    project.write(
        {
            "zeta.py": "def one():\n    return 1\n",
            "alpha.py": "def two():\n    return 2\n",
            "envmod.py": env_module("from zeta import one\nfrom alpha import two", answer="return one() + two()"),
        }
    )
    text = project.refusal("auto_local_modules=False, local_modules=[env_module]")
    assert "missing local_modules=[alpha, zeta]" in text
    assert "registered: [envmod]" in text


def test_without_capture_explicit_modules_satisfy(project: Project) -> None:
    project.write(
        {
            "helper.py": "def one():\n    return 1\n",
            "envmod.py": env_module("from helper import one", answer="return one()"),
        }
    )
    project.dump("auto_local_modules=False, local_modules=[env_module, sys.modules['helper']]")
    assert project.load() == 1


def test_package_registered_explicitly_covers_its_modules(project: Project) -> None:
    project.write(
        {
            "pkg/__init__.py": "",
            "pkg/part.py": "def one():\n    return 1\n",
            "pkg/env.py": env_module("from pkg.part import one", answer="return one()"),
        }
    )
    project.dump("auto_local_modules=False, local_modules=[sys.modules['pkg']]", module="pkg.env")
    assert project.load() == 1


def test_object_that_pickles_by_name_only_is_refused_and_named(project: Project) -> None:
    project.write(
        {
            "table.py": "from functools import lru_cache\n@lru_cache\ndef rows():\n    return [1]\n",
            "envmod.py": env_module("from table import rows", answer="return rows()"),
        }
    )
    text = project.refusal()
    assert "missing local_modules=[table]" in text
    assert "table.rows (functools._lru_cache_wrapper)" in text


def test_module_that_cannot_be_imported_surfaces_as_missing(project: Project) -> None:
    project.write(
        {
            "broken.py": "raise LookupError('at import')\n",
            "envmod.py": env_module("""
                import importlib
                class Late:
                    def __reduce__(self):
                        return (importlib.import_module, ("broken",))
            """),
        }
    )
    assert "missing local_modules=[broken]" in project.refusal("constructor_args={'late': env_module.Late()}")


def test_declaring_a_distribution_does_not_satisfy_guard_a(project: Project) -> None:
    project.write({"envmod.py": env_module()})
    project.path = [project.root, install(project, "envmod", "env-dist")]
    assert "missing local_modules=[envmod]" in project.refusal(
        "auto_local_modules=False, pip_dependencies=['env-dist']"
    )


# guard B


@pytest.mark.parametrize("marked", [True, False], ids=["another project", "a plain folder"])
def test_source_of_another_folder_is_refused(project: Project, marked: bool) -> None:
    with_other_folder(project, marked=marked)
    text = project.refusal()
    assert "outside the environment project: shared." in text
    assert "local_modules" in text
    assert "pip_dependencies" in text
    assert "shared.py): one" in text


def test_passing_the_module_object_is_a_remedy(project: Project) -> None:
    with_other_folder(project)
    project.dump("local_modules=[sys.modules['shared']]")
    assert project.load() == 1


@pytest.mark.parametrize("entry", ["Shared_Dist", "shared-dist>=1; python_version >= '3'"])
def test_declaring_the_distribution_is_a_remedy(project: Project, entry: str) -> None:
    with_other_folder(project)
    project.path.append(install(project, "shared", "shared-dist"))
    project.dump(f"pip_dependencies=[{entry!r}]")


def test_declaring_an_editable_installation_whose_file_list_names_no_package_is_a_remedy(project: Project) -> None:
    with_other_folder(project)
    project.path.append(install(project, "shared", "Shared", record="_editable_shared.pth,,\n"))
    project.dump("pip_dependencies=['shared']")


@pytest.mark.parametrize("entry", ["other-dist", "shared"])
def test_declaring_something_else_is_none(project: Project, entry: str) -> None:
    # what counts is the distribution that owns the package, not a name that looks alike
    with_other_folder(project)
    project.path.append(install(project, "shared", "shared-dist"))
    assert "outside the environment project" in project.refusal(f"pip_dependencies=[{entry!r}]")


def test_declaring_what_is_not_installed_is_none(project: Project) -> None:
    with_other_folder(project)
    assert "outside the environment project" in project.refusal("pip_dependencies=['shared']")


def test_environment_in_a_plain_folder_is_itself_external_source(loose: Project) -> None:
    loose.write({"envmod.py": env_module()})
    assert "outside the environment project: envmod." in loose.refusal()
    loose.dump("local_modules=[env_module]")
    assert loose.load() == 1


def test_installation_metadata_does_not_make_source_installed(loose: Project) -> None:
    loose.write({"envmod.py": env_module()})
    loose.path = [loose.root, install(loose, "envmod", "env-dist")]
    assert "outside the environment project: envmod." in loose.refusal()


def test_external_object_that_pickles_by_name_only_is_named(project: Project) -> None:
    with_other_folder(project)
    project.write(
        {"shared.py": "from functools import cache\n@cache\ndef one():\n    return 1\n"}, under=project.path[1]
    )
    # as a module without any project: passing it does not make it one
    (project.path[1] / "pyproject.toml").unlink()
    text = project.refusal("local_modules=[sys.modules['shared']]")
    assert "outside the environment project: shared." in text
    assert "shared.one (functools._lru_cache_wrapper)" in text


def test_guard_a_is_reported_before_guard_b(project: Project) -> None:
    with_other_folder(project)
    project.write(
        {
            "table.py": "from functools import lru_cache\n@lru_cache\ndef rows():\n    return [1]\n",
            "envmod.py": env_module("from shared import one\nfrom table import rows", answer="return rows(), one()"),
        }
    )
    assert "missing local_modules=[table]" in project.refusal()


def test_class_of_the_main_module_goes_by_value(lab: Lab, tmp_path: Path) -> None:
    script = env_module(answer="return 4").replace("class Env(", "__name__ = '__main__'\nclass Env(")
    script += """
import pickle
from benchmax.bundle import dump_bundle
Env.__module__ = "__main__"
result = list(dump_bundle(Env).pickled)
"""
    pickled = lab.run(script, cwd=tmp_path)
    load = f"import pickle; env, args = pickle.loads(bytes({pickled})); result = env(**args).answer()"
    assert lab.run(load, cwd=tmp_path) == 4


def test_object_typed_into_a_prompt_that_pickles_by_name_only_is_warned_of(lab: Lab, tmp_path: Path) -> None:
    script = """
import functools, logging, sys
class Keep(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())
lines = []
logging.getLogger("benchmax.bundle").addHandler(Keep())
sys.modules["__main__"].__dict__["rows"] = functools.lru_cache(len)
rows = sys.modules["__main__"].rows
rows.__module__, rows.__qualname__ = "__main__", "rows"
""" + env_module(answer="return rows('')")
    script += """
from benchmax.bundle import dump_bundle
dump_bundle(Env)
result = lines
"""
    lines = lab.run(script, cwd=tmp_path)
    assert isinstance(lines, list)
    line = str(lines)
    assert len(lines) == 1
    assert "will not load in another process" in line
    assert "__main__.rows (functools._lru_cache_wrapper)" in line


def test_cloudpickle_itself_may_lie_anywhere(tmp_path: Path) -> None:
    # as it does when packages come from a folder on PYTHONPATH
    import cloudpickle  # type: ignore[import-untyped]

    vendored = tmp_path / "vendored"
    vendored.mkdir()
    (vendored / "cloudpickle").mkdir()
    for file in Path(str(cloudpickle.__file__)).parent.glob("*.py"):
        (vendored / "cloudpickle" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "again").mkdir()
    with Lab() as started:
        project = new_project(started, tmp_path / "again")
        project.write({"envmod.py": env_module()})
        project.path = [project.root, vendored]
        forget = "for name in [n for n in sys.modules if n.startswith('cloudpickle')]: del sys.modules[name]"
        project.dump(before=forget, after=f"assert sys.modules['cloudpickle'].__file__.startswith({str(vendored)!r})")
    assert "cloudpickle" in sys.modules
