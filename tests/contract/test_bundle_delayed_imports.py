"""Guard C: imports that run later, where the captured modules have no import names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .bundle_lab import ENV, Lab, Project, env_module, new_project


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as started:
        yield started


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Project:
    made = new_project(lab, tmp_path)
    made.write(
        {
            "helper.py": "def one():\n    return 1\n",
            "pkg/__init__.py": "",
            "pkg/h.py": "",
            "pkg/sub/__init__.py": "",
            "pkg/sub/deep.py": "",
        }
    )
    return made


def delayed(project: Project, arguments: str = "", *, module: str = "envmod") -> str:
    """Return the names that guard C lists; empty when the bundle was made."""
    marker = "delayed import of source that will not be importable remotely: "
    try:
        text = project.refusal(arguments, module=module)
    except AssertionError as error:
        assert str(error) == "the bundle was made", error
        return ""
    assert marker in text
    return text.partition(marker)[2].partition(". Found")[0]


# what counts as an import


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("import helper", "helper"),
        ("import helper as h", "helper"),
        ("from helper import one", "helper"),
        ("import pkg.h", "pkg.h"),
        ("from pkg.h import x", "pkg.h"),
        ("from pkg import h", "pkg"),
        ("import pkg.sub.deep as d, helper", "helper, pkg.sub.deep"),
        ("if self is None:\n    import helper", "helper"),
        ("try:\n    import helper\nexcept ImportError:\n    pass", "helper"),
        ("return [(lambda: __import__('helper'))() for _ in range(3)]", "helper"),
        ("def inner():\n    class Inner:\n        import helper\n    return Inner", "helper"),
        ("async def inner():\n    import helper\n    yield helper", "helper"),
    ],
)
def test_import_statement_in_a_method_is_refused(project: Project, body: str, names: str) -> None:
    project.write({"envmod.py": env_module(answer=body)})
    assert delayed(project) == names


def test_place_of_the_import_is_given(project: Project) -> None:
    project.write({"envmod.py": env_module(answer="x = 1\nimport helper")})
    text = project.refusal()
    line = (project.root / "envmod.py").read_text().splitlines().index("        import helper") + 1
    assert f"helper in Env.answer ({project.root / 'envmod.py'}:{line})" in text
    assert "local_modules does not help" in text


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("from . import h", "pkg, pkg.h"),
        ("from .h import x", "pkg.h"),
        ("from .sub import deep", "pkg.sub"),
        ("from .sub.deep import x", "pkg.sub.deep"),
        ("from . import missing", "pkg"),
        ("from .. import nothing", ""),
    ],
)
def test_relative_imports_are_resolved_against_the_package(project: Project, body: str, names: str) -> None:
    project.write({"pkg/env.py": env_module(answer=body)})
    assert delayed(project, module="pkg.env") == names


@pytest.mark.parametrize(("file", "module"), [("pkg/env.py", "pkg.env"), ("pkg/__init__.py", "pkg")])
def test_package_is_told_from_the_name_of_a_module_that_does_not_say(project: Project, file: str, module: str) -> None:
    project.write({file: env_module("del __package__", answer="from . import h")})
    assert delayed(project, module=module) == "pkg, pkg.h"


def test_relative_import_in_the_package_file_itself_is_resolved(project: Project) -> None:
    project.write({"pkg/__init__.py": env_module(answer="from . import h")})
    assert delayed(project, module="pkg") == "pkg, pkg.h"


@pytest.mark.parametrize(
    "body",
    [
        "import json, os.path, xml.etree.ElementTree",
        "import benchmax.envs\nfrom benchmax.rewards import judge",
        "import packaging.version\nfrom hypothesis import given",
        "import no_such_module_anywhere",
        "return importlib.import_module('json')",
    ],
)
def test_installed_standard_and_own_modules_are_always_fine(project: Project, body: str) -> None:
    project.write({"envmod.py": env_module("import importlib", answer=body)})
    assert delayed(project) == ""


def test_imports_at_the_top_of_the_module_are_fine(project: Project) -> None:
    project.write({"envmod.py": env_module("import helper\nimport pkg.sub.deep", answer="return helper.one()")})
    assert delayed(project) == ""
    assert project.load() == 1


# literal dynamic imports


@pytest.mark.parametrize(
    "call",
    [
        "__import__('helper')",
        "__import__('helper', globals(), None, [], 0)",
        "__import__(name='helper')",
        "importlib.import_module('helper')",
        "importlib.import_module(name='helper')",
        "importlib.import_module('helper', package=None)",
        "importlib.import_module(package=str(self), name='helper')",
        "import_module('helper')",
        "self.importlib.import_module('helper')",
        "print(import_module('helper'), 'pkg')",
        "import_module(str(len('pkg')), 'helper')",
        "import_module('helper').one() if self else import_module(str(self))",
    ],
)
def test_literal_dynamic_import_is_refused(project: Project, call: str) -> None:
    project.write(
        {"envmod.py": env_module("import importlib\nfrom importlib import import_module", answer=f"return {call}")}
    )
    assert delayed(project) == "helper"


@pytest.mark.parametrize(
    "body",
    [
        "return import_module('hel' + str('per'))",
        "return import_module(f'{self}helper')",
        "name = 'helper'\nreturn import_module(name)",
        "return import_module('helper'.strip())",
        "return import_module('helper' if self else 'pkg')",
        "return import_module(*['helper'])",
        "return import_module(self['helper'])",
        "return import_module(str('helper'))",
        "return import_module, 'helper'",
        "return self.load('helper')",
        "from importlib import import_module as import_module\nreturn import_module('helper')",
        "return import_module('pkg/h')",
    ],
)
def test_computed_or_locally_bound_dynamic_imports_are_not_inspected(project: Project, body: str) -> None:
    project.write({"envmod.py": env_module("from importlib import import_module", answer=body)})
    assert delayed(project) == ""


def test_relative_literals_are_not_resolved(project: Project) -> None:
    project.write(
        {"pkg/env.py": env_module("import importlib", answer="return importlib.import_module('.h', __package__)")}
    )
    assert delayed(project, module="pkg.env") == ""


# where it is searched

LATE = "def late():\n    import helper\n    return helper\n"


@pytest.mark.parametrize(
    "members",
    [
        "    @staticmethod\n    def s():\n        import helper\n",
        "    @classmethod\n    def c(cls):\n        import helper\n",
        "    @property\n    def p(self):\n        import helper\n",
        "    p = property(None, lambda self, value: __import__('helper'))\n",
        "    p = property(None, None, lambda self: __import__('helper'))\n",
        "    async def a(self):\n        import helper\n",
        "    def default(self, f=late):\n        pass\n",
        "    def keyword_default(self, *, f=late):\n        pass\n",
        "    def named(self):\n        return late()\n",
        "    def named_inside(self):\n        return [lambda: late() for _ in '12']\n",
        "    def through_a_class(self):\n        return Tool().use()\n",
        "    def through_a_decorator(self):\n        pass\n    through_a_decorator = wrapped(through_a_decorator)\n",
    ],
)
def test_everything_the_class_reaches_by_name_is_searched(project: Project, members: str) -> None:
    head = (
        LATE
        + "class Tool:\n    def use(self):\n        import helper\n"
        + "def wrapped(f):\n    inner = late\n    def call(self):\n        return inner() or f(self)\n    return call\n"
    )
    project.write({"envmod.py": head + ENV + members})
    assert delayed(project) == "helper"


@pytest.mark.parametrize(
    ("head", "members"),
    [
        (LATE, ""),
        (LATE, "    late = functools.partial(late)\n"),
        (LATE, "    late = functools.cached_property(late)\n"),
        (LATE, "    tools = [late]\n"),
        (LATE + "class Tool:\n    use = late\ntool = Tool()\n", "    def x(self):\n        return tool\n"),
        ("class Base(Environment):\n    def x(self):\n        import helper\n", ""),
    ],
    ids=["unreachable", "partial", "cached_property", "container", "instance", "base class"],
)
def test_what_is_not_reached_by_name_is_not_searched(project: Project, head: str, members: str) -> None:
    head = "import functools\nfrom benchmax.envs import Environment\n" + head
    module = head + ENV + members
    if "class Base" in head:
        module = module.replace("class Env(Environment[dict, RolloutAttempt])", "class Env(Base)")
    project.write({"envmod.py": module})
    assert delayed(project) == ""


def test_function_of_a_captured_module_is_searched(project: Project) -> None:
    project.write({"part.py": LATE, "envmod.py": env_module("from part import late", answer="return late()")})
    assert delayed(project) == "helper"


def test_other_functions_of_that_module_are_not(project: Project) -> None:
    project.write(
        {
            "part.py": LATE + "def plain():\n    return 1\n",
            "envmod.py": env_module("from part import plain", answer="return plain()"),
        }
    )
    assert delayed(project) == ""


@pytest.mark.parametrize(
    "source", [LATE, "class Tool:\n    def use(self):\n        import helper\n"], ids=["function", "class"]
)
def test_module_named_as_a_global_is_searched_whole(project: Project, source: str) -> None:
    project.write(
        {
            "part.py": source + "def plain():\n    return 1\n",
            "envmod.py": env_module("import part", answer="return part.plain()"),
        }
    )
    assert delayed(project) == "helper"


def test_submodule_named_through_its_package_is_searched(project: Project) -> None:
    project.write({"pkg/h.py": LATE, "pkg/sub/deep.py": "def late():\n    import helper\n"})
    project.write({"envmod.py": env_module("import pkg.sub.deep", answer="return pkg.sub.deep.late()")})
    assert delayed(project) == "helper"


def test_things_a_searched_module_only_imported_are_not_part_of_it(project: Project) -> None:
    project.write(
        {
            "other.py": LATE,
            "part.py": "from other import late\ndef plain():\n    return 1\n",
            "envmod.py": env_module("import part", answer="return part.plain()"),
        }
    )
    assert delayed(project) == ""


def test_installed_module_named_as_a_global_is_not_entered(project: Project) -> None:
    project.write({"envmod.py": env_module("import packaging.version as v", answer="return v.Version('1').major")})
    assert delayed(project) == ""


def test_declared_module_named_as_a_global_is_not_entered(project: Project) -> None:
    # it is installed where the bundle is loaded and stays importable there, with whatever it imports
    with_other_folder(project)
    project.write({"shared.py": LATE}, under=project.path[1])
    project.write({"envmod.py": env_module("import shared", answer="return shared.late()")})
    assert delayed(project, "pip_dependencies=['shared-dist']") == ""


def test_module_of_a_package_passed_explicitly_is_searched(project: Project) -> None:
    project.write({"pkg/h.py": LATE, "envmod.py": env_module("from pkg.h import late", answer="return late()")})
    assert delayed(project, "local_modules=[sys.modules['pkg']]") == "helper"


# remedies


def with_other_folder(project: Project) -> None:
    other = project.root.parent / "other"
    project.path = [project.root, other]
    project.write({"shared.py": "def one():\n    return 1\n", "pyproject.toml": ""}, under=other)
    info = other / "shared_dist-1.0.dist-info"
    project.write(
        {"METADATA": "Metadata-Version: 2.1\nName: shared-dist\nVersion: 1.0\n", "RECORD": "shared.py,,\n"}, under=info
    )
    project.write({"envmod.py": env_module(answer="import shared\nreturn shared.one()")})


def test_delayed_import_of_external_source_is_refused(project: Project) -> None:
    with_other_folder(project)
    assert delayed(project) == "shared"


def test_local_modules_do_not_help(project: Project) -> None:
    with_other_folder(project)
    assert delayed(project, "local_modules=[importlib.import_module('shared')]") == "shared"


def test_declaring_the_distribution_helps(project: Project) -> None:
    with_other_folder(project)
    assert delayed(project, "pip_dependencies=['shared-dist']") == ""


def test_declaring_helps_for_modules_of_the_project_too(project: Project) -> None:
    project.write(
        {
            "helper-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: helper-dist\nVersion: 1.0\n",
            "helper-1.0.dist-info/RECORD": "helper.py,,\n",
            "envmod.py": env_module(answer="import helper\nreturn helper.one()"),
        }
    )
    assert delayed(project) == "helper"
    assert delayed(project, "pip_dependencies=['helper-dist']") == ""


def test_without_any_project_plain_folders_are_external_source(lab: Lab, tmp_path: Path) -> None:
    loose = new_project(lab, tmp_path, marked=False)
    loose.write({"helper.py": "", "envmod.py": env_module(answer="import helper")})
    assert delayed(loose, "local_modules=[env_module]") == "helper"


def test_module_is_located_without_being_executed(project: Project) -> None:
    project.write(
        {
            "side/__init__.py": "raise AssertionError('executed')",
            "side/effect.py": "raise AssertionError('executed')",
            "envmod.py": env_module(answer="import side.effect"),
        }
    )
    assert delayed(project) == "side.effect"


def test_guard_b_is_reported_before_guard_c(project: Project) -> None:
    with_other_folder(project)
    project.write({"envmod.py": env_module("from shared import one", answer="import helper\nreturn one()")})
    assert "outside the environment project" in project.refusal()
