"""Automatic capture: which modules travel by value, and that they work where nothing of the project exists."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import sysconfig
import venv
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


def captured(lines: object) -> list[list[str]]:
    """Return the module names of each logged capture round."""
    assert isinstance(lines, list)
    marker = "auto-bundling local module(s): "
    return [
        text.partition(marker)[2].partition(". ")[0].split(", ")
        for level, text in lines
        if level == "WARNING" and marker in text
    ]


# what is captured


def test_module_of_the_class_is_captured(project: Project) -> None:
    project.write({"envmod.py": env_module("FACTOR = 2", answer="return FACTOR")})
    assert captured(project.dump()) == [["envmod"]]
    assert project.load() == 2


def test_sibling_modules_are_captured_round_by_round(project: Project) -> None:
    project.write(
        {
            "low.py": "LIMIT = 7\ndef limit():\n    return LIMIT\n",
            "high.py": "from low import limit\ndef twice():\n    return 2 * limit()\n",
            "envmod.py": env_module("from high import twice", answer="return twice()"),
        }
    )
    assert captured(project.dump()) == [["envmod"], ["high"], ["low"]]
    assert project.load() == 14


def test_module_kept_as_an_object_is_captured(project: Project) -> None:
    project.write(
        {
            "helper.py": "FACTOR = 3\ndef triple(n):\n    return FACTOR * n\n",
            "envmod.py": env_module("import helper", answer="return [helper.triple(2), helper.FACTOR]"),
        }
    )
    project.dump()
    assert project.load() == [6, 3]


def test_relative_imports_inside_a_package_are_captured(project: Project) -> None:
    project.write(
        {
            "pkg/__init__.py": "",
            "pkg/util.py": "def one():\n    return 1\n",
            "pkg/inner/__init__.py": "",
            "pkg/inner/env.py": env_module(
                "from ..util import one\nfrom . import near", answer="return one() + near.TWO"
            ),
            "pkg/inner/near.py": "TWO = 2\n",
        }
    )
    project.dump(module="pkg.inner.env")
    assert project.load() == 3


def test_package_that_is_named_with_its_submodule_is_captured(project: Project) -> None:
    project.write(
        {
            "pkg/__init__.py": "import pkg.env\n",
            "pkg/util.py": "import pkg\ndef one():\n    return pkg.ONE\n",
            "pkg/env.py": env_module("import pkg.util", answer="return pkg.util.one()", tail="pkg.ONE = 1"),
        }
    )
    project.dump(module="pkg.env")
    assert project.load() == 1


def test_namespace_package_is_captured(project: Project) -> None:
    project.write(
        {
            "space/deep/util.py": "def one():\n    return 1\n",
            "space/env.py": env_module("import space.deep.util as util", answer="return util.one()"),
        }
    )
    project.dump(module="space.env")
    assert project.load() == 1


def test_namespace_package_kept_as_an_object_is_captured(project: Project) -> None:
    project.write(
        {
            "space/deep/util.py": "def one():\n    return 1\n",
            "envmod.py": env_module("import space.deep.util", answer="return space.deep.util.one()"),
        }
    )
    project.dump()
    assert project.load() == 1


def test_module_whose_loader_cannot_be_pickled_is_captured(project: Project) -> None:
    project.write(
        {
            "helper.py": "import threading\n__loader__ = threading.Lock()\n__spec__.loader = __loader__\nONE = 1\n",
            "envmod.py": env_module("import helper", answer="return helper.ONE"),
        }
    )
    project.dump()
    assert project.load() == 1


def test_base_class_of_another_module_is_captured(project: Project) -> None:
    project.write(
        {
            "base.py": env_module(answer="return 5").replace("class Env(", "class Base("),
            "envmod.py": "from base import Base\nclass Env(Base):\n    pass\n",
        }
    )
    project.dump()
    assert project.load() == 5


def test_modules_reached_from_constructor_arguments_are_captured(project: Project) -> None:
    project.write(
        {
            "scores.py": "from base_score import half\nclass Score:\n    def value(self):\n        return half(9)\n",
            "base_score.py": "def half(n):\n    return n / 2\n",
            "envmod.py": env_module(answer="return self.score.value()")
            + "    def __init__(self, *, score):\n        self.score = score\n",
        }
    )
    lines = project.dump("constructor_args={'score': scores.Score()}", before="import scores")
    assert captured(lines) == [["envmod", "scores"], ["base_score"]]
    assert project.load() == 4.5


def test_source_layout_is_one_project(project: Project) -> None:
    project.path = [project.root / "src", project.root / "tools"]
    project.write(
        {
            "src/app/__init__.py": "",
            "src/app/env.py": env_module("from toolbox import one", answer="return one()"),
            "tools/toolbox.py": "def one():\n    return 1\n",
        }
    )
    assert captured(project.dump(module="app.env")) == [["app.env"], ["toolbox"]]
    assert project.load() == 1


def test_project_folder_may_itself_be_the_package(project: Project) -> None:
    project.path = [project.root.parent]
    project.write({"helper.py": "def one():\n    return 1\n"})
    project.write({"envmod.py": env_module("from project.helper import one", answer="return one()")})
    project.dump(module="project.envmod")
    assert project.load() == 1


def test_nearest_pyproject_is_the_root(project: Project) -> None:
    project.path = [project.root / "inner", project.root]
    project.write(
        {
            "inner/pyproject.toml": "",
            "outer.py": "def one():\n    return 1\n",
            "inner/envmod.py": env_module("from outer import one", answer="return one()"),
        }
    )
    text = project.refusal()
    assert "outside the environment project" in text
    assert "outer" in text


def test_link_to_a_module_counts_where_it_points(project: Project) -> None:
    project.write({"envmod.py": env_module("from linked import one", answer="return one()")})
    target = project.root.parent / "real.py"
    target.write_text("def one():\n    return 1\n")
    (project.root / "linked.py").symlink_to(target)
    assert "outside the environment project: linked." in project.refusal()


def test_script_takes_its_siblings_along(project: Project) -> None:
    project.write(
        {
            "helper.py": "def one():\n    return 1\n",
            "script.py": env_module(
                "from helper import one",
                answer="return one() + TWO",
                tail=f"""
                    TWO = 2
                    if __name__ == "__main__":
                        import pickle
                        from benchmax.bundle import dump_bundle
                        with open({str(project.bundle_file)!r}, "wb") as file:
                            pickle.dump(dump_bundle(Env), file)
                """,
            ),
        }
    )
    subprocess.run([sys.executable, str(project.root / "script.py")], check=True, cwd="/")
    assert project.load() == 3


def test_mutually_importing_modules_are_captured(project: Project) -> None:
    project.write(
        {
            "left.py": "import right\ndef down(n):\n    return n if n == 0 else right.down(n - 1)\n",
            "right.py": "import left\ndef down(n):\n    return n if n == 0 else left.down(n - 1)\n",
            "envmod.py": env_module("import left", answer="return left.down(5)"),
        }
    )
    project.dump()
    assert project.load() == 0


def test_cached_property_works_on_the_other_side(project: Project) -> None:
    project.write(
        {
            "envmod.py": env_module("from functools import cached_property", answer="return self.table + self.table")
            + "    @cached_property\n    def table(self):\n        return [1]\n"
        }
    )
    project.dump()
    assert project.load("[env.answer(), env.table is env.table, 'table' in vars(env)]") == [[1, 1], True, True]


def test_explicit_module_of_another_folder_is_taken_along_with_its_project(project: Project) -> None:
    other = project.root.parent / "other"
    project.path = [project.root, other]
    project.write(
        {
            "pyproject.toml": "",
            "shared.py": "from shared_base import base\ndef one():\n    return base()\n",
            "shared_base.py": "def base():\n    return 1\n",
        },
        under=other,
    )
    project.write({"envmod.py": env_module("import shared", answer="return shared.one()")})
    # its root is known from the explicit module, so what it needs is found as well
    assert captured(project.dump("local_modules=[shared]", before="import shared")) == [["envmod"], ["shared_base"]]
    assert project.load() == 1


def test_installed_and_standard_modules_stay_references(project: Project) -> None:
    project.write(
        {
            "envmod.py": env_module(
                "import json, packaging.version\nfrom packaging.version import Version",
                answer="return json.dumps([Version('1.0').major, packaging.version.Version('2').major])",
            )
        }
    )
    assert captured(project.dump()) == [["envmod"]]
    assert project.load() == "[1, 2]"


def test_nothing_is_logged_when_nothing_is_local(lab: Lab, tmp_path: Path) -> None:
    project = new_project(lab, tmp_path)
    script = (
        env_module()
        + """
import logging, pickle
from benchmax.bundle import dump_bundle
lines = []
class Keep(logging.Handler):
    def emit(self, record):
        lines.append([record.levelname, record.getMessage()])
logging.getLogger("benchmax.bundle").addHandler(Keep())
dump_bundle(Env)
result = lines
"""
    )
    assert captured(lab.run(script, cwd=project.root)) == []


# how far it goes


def chain(length: int) -> dict[str, str]:
    """Return modules of which each knows only the next; the first is the environment's."""
    names = ["envmod", *(f"link{number}" for number in range(1, length))]
    files = {
        f"{name}.py": f"from {after} import f as g\ndef f():\n    return 1 + g()\n"
        for name, after in itertools.pairwise(names)
    }
    files[f"{names[-1]}.py"] = "def f():\n    return 1\n"
    files["envmod.py"] = env_module("from link1 import f", answer="return 1 + f()")
    return files


def test_chain_of_ten_modules_is_captured(project: Project) -> None:
    project.write(chain(10))
    assert len(captured(project.dump())) == 10
    assert project.load() == 10


def test_chain_of_eleven_modules_is_refused(project: Project) -> None:
    project.write(chain(11))
    assert "missing local_modules=[link10]" in project.refusal()


def test_explicit_module_shortens_the_chain(project: Project) -> None:
    project.write(chain(11))
    project.dump("local_modules=[importlib.import_module('link10')]")
    assert project.load() == 11


# site-packages


def make_venv(folder: Path) -> tuple[Path, Path]:
    """Make a venv that sees this one's packages; return its interpreter and its site-packages."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (site / "seen.pth").write_text(sysconfig.get_path("purelib") + "\n" + str(Path(__file__).parents[2]) + "\n")
    # a package counts as installed where the interpreter itself keeps packages
    import cloudpickle  # type: ignore[import-untyped]

    (site / "cloudpickle").symlink_to(Path(str(cloudpickle.__file__)).parent)
    return python, site


def test_packages_of_a_venv_inside_the_project_are_not_source(project: Project) -> None:
    python, site = make_venv(project.root / ".venv")
    (site / "installed.py").write_text("def one():\n    return 1\n")
    project.write({"envmod.py": env_module("from installed import one", answer="return one()")})
    with Lab(str(python)) as inside:
        project.lab = inside
        assert captured(project.dump()) == [["envmod"]]


def test_editable_installation_counts_as_source(project: Project) -> None:
    # written first: an interpreter ignores path entries that do not exist when it starts
    project.write(
        {
            "src/app/__init__.py": "",
            "src/app/part.py": "def one():\n    return 1\n",
            "src/app/env.py": env_module("from app.part import one", answer="return one()"),
        }
    )
    project.path = [project.elsewhere]
    python, site = make_venv(project.root.parent / "venv")
    (site / "_editable_app.pth").write_text(f"{project.root / 'src'}\n")
    info = site / "app-1.0.dist-info"
    project.write(
        {
            "METADATA": "Metadata-Version: 2.1\nName: app\nVersion: 1.0\n",
            "RECORD": "_editable_app.pth,,\napp-1.0.dist-info/METADATA,,\n",
        },
        under=info,
    )
    with Lab(str(python)) as inside:
        project.lab = inside
        assert captured(project.dump(module="app.env")) == [["app.env"], ["app.part"]]


def test_user_site_is_not_source(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project.root))
    base = (
        project.root / ".local" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )
    project.write({"installed.py": "def one():\n    return 1\n"}, under=base)
    project.write({"envmod.py": env_module("from installed import one", answer="return one()")})
    project.path = [project.root, base]
    with Lab() as at_home:
        project.lab = at_home
        assert captured(project.dump()) == [["envmod"]]
    assert os.environ["HOME"] == str(project.root)


# replaying


def test_scan_runs_nothing_and_needs_nothing(lab: Lab, tmp_path: Path) -> None:
    script = """
        import pickle, sys
        from benchmax.bundle import unregistered_local_refs
        was = set(sys.modules)
        pickled = (
            b"cno_such.module\\nThing\\n(I1\\ntR(dS'a'\\ncalso_missing\\nVALUE\\nsb0"
            b"cos\\nsystem\\n(S'touch ran'\\ntR0"
            b"ccloudpickle.cloudpickle\\nsubimport\\n(S'wave'\\ntR."
        )
        found = unregistered_local_refs(pickled)
        import os
        result = [found, os.path.exists("ran"), sorted({"no_such", "also_missing", "wave"} & set(sys.modules) - was)]
    """
    assert lab.run(script, cwd=tmp_path) == [[], False, []]


def test_local_references_of_a_pickle_are_listed_with_roots_of_their_own(project: Project) -> None:
    other = project.root.parent / "other"
    project.path = [project.root, other, project.root.parent]
    project.write({"pyproject.toml": "", "shared.py": "def one():\n    return 1\n"}, under=other)
    project.write({"loose.py": "def two():\n    return 2\n"}, under=project.root.parent)
    project.write({"pkg/__init__.py": "", "pkg/part.py": "def three():\n    return 3\n"})
    script = """
        import json, sys, cloudpickle, loose, shared
        import pkg.part
        from benchmax.bundle import unregistered_local_refs
        pickled = cloudpickle.dumps([shared.one, loose.two, pkg.part.three, pkg, json.dumps, dict])
        result = unregistered_local_refs(pickled)
    """
    assert project.lab.run(script, cwd=project.root, path=project.path) == ["pkg", "pkg.part", "shared"]


def test_folder_with_the_project_file_is_inside_its_own_project(project: Project) -> None:
    # imported from above, the folder itself is the package
    script = """
        import project, cloudpickle
        from benchmax.bundle import unregistered_local_refs
        result = unregistered_local_refs(cloudpickle.dumps(project))
    """
    assert project.lab.run(script, cwd=project.elsewhere, path=[project.root.parent]) == ["project"]


def test_local_references_of_modules_that_are_not_imported_are_found(project: Project) -> None:
    project.write({"pkg/__init__.py": "raise AssertionError('executed')", "pkg/deep/part.py": "raise AssertionError"})
    script = """
        import sys
        from benchmax.bundle import unregistered_local_refs
        result = unregistered_local_refs(b"cpkg.deep.part\\nThing\\n0cpkg\\nOther\\n0cpkg.missing\\nX\\n.")
        assert not {"pkg", "pkg.deep", "pkg.deep.part"} & set(sys.modules)
    """
    assert project.lab.run(script, cwd=project.root, path=[project.root]) == ["pkg", "pkg.deep.part"]


def test_scan_tells_what_travels_by_value_from_what_is_referred_to(project: Project) -> None:
    project.write(
        {
            "helper.py": "def one():\n    return 1\n",
            "kinds.py": "import enum\nclass Kind(enum.Enum):\n    A = 1\n",
            "plain.py": "VALUE = 1\n",
            "envmod.py": env_module(
                "import json, plain\nfrom helper import one\nfrom kinds import Kind\nfrom os import environ",
                answer="return json.dumps([one(), plain.VALUE, environ]), Kind.A",
            ),
        }
    )
    script = """
        from benchmax.bundle.capture.references import find_references
        found = find_references(bundle.pickled)
        result = [found.by_value, found.names["json"], found.names["os"], found.names["benchmax.envs.environment"]]
    """
    # the environment's own encoders are functions inside functions of `os`, so they travel by value with it
    assert project.dump(after=script) == [
        ["envmod", "helper", "kinds", "os", "plain"],
        [],
        ["_Environ"],
        ["Environment"],
    ]


def test_corrupt_pickle_cannot_be_listed(lab: Lab, tmp_path: Path) -> None:
    script = """
        from benchmax.bundle import BundlingError, unregistered_local_refs
        try:
            unregistered_local_refs(b"broken")
        except BundlingError as error:
            result = str(error)
    """
    assert "corrupt" in str(lab.run(script, cwd=tmp_path))
