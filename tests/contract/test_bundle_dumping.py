"""Dumping: order of checks, metadata, log events, errors that name the culprit, and what is put back afterwards."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]
import pytest

import benchmax.bundle
from benchmax.bundle import BundlingError, dump_bundle
from benchmax.envs import Dataset, Environment, RolloutAttempt, RolloutRequest
from tests.naming import name_of

from .bundle_lab import ENV, Lab, Project, env_module, method, new_project

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"


class Env(Environment[object, RolloutAttempt]):
    async def create_dataset(self, split: str, base_dir: Path, *, max_examples: int | None = None) -> Dataset[object]:
        return Dataset([])

    async def run_rollout(self, request: RolloutRequest[object]) -> RolloutAttempt:
        raise NotImplementedError


class Abstract(Environment[object, RolloutAttempt]):
    pass


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as started:
        yield started


@pytest.fixture
def project(lab: Lab, tmp_path: Path) -> Project:
    return new_project(lab, tmp_path)


# what may be dumped


@pytest.mark.parametrize("value", [None, "Env", Env(), int, ModuleType("env")], ids=name_of)
def test_anything_but_an_environment_class_is_refused(value: object) -> None:
    with pytest.raises(BundlingError, match="does not implement"):
        dump_bundle(value)  # type: ignore[arg-type]


def test_environment_itself_is_refused() -> None:
    with pytest.raises(BundlingError, match="does not implement"):
        dump_bundle(Environment)


def test_abstract_methods_are_listed_sorted() -> None:
    with pytest.raises(BundlingError, match="unimplemented abstract methods: create_dataset, run_rollout"):
        dump_bundle(Abstract)


def test_invalid_requirements_are_refused_before_anything_is_pickled() -> None:
    unpicklable = {"lock": threading.Lock()}
    with pytest.raises(BundlingError, match=r"Invalid pip_dependencies: .*target 'x' is declared more than once"):
        dump_bundle(Env, constructor_args=unpicklable, pip_dependencies=["x", "X>=1"])
    with pytest.raises(BundlingError, match=r"Invalid pip_dependencies: .*sequence"):
        dump_bundle(Env, pip_dependencies="x")
    with pytest.raises(BundlingError, match="Invalid pip_dependencies"):
        dump_bundle(Env, pip_dependencies=[""], local_modules=["envs"])  # type: ignore[list-item]


def test_own_version_must_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmax.bundle.dumping.running_benchmax", lambda: "unknown")
    with pytest.raises(BundlingError, match="version of benchmax is unknown"):
        dump_bundle(Env, local_modules=["envs"])  # type: ignore[list-item]


@pytest.mark.parametrize("value", [["envs"], [sys, None], "envs", sys, 3], ids=name_of)
def test_local_modules_must_be_module_objects(value: object) -> None:
    with pytest.raises(BundlingError, match="module objects"):
        dump_bundle(Env, local_modules=value, constructor_args={"lock": threading.Lock()})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[("a", 1)], {1: 2}, "a"], ids=name_of)
def test_constructor_arguments_must_be_named(value: object) -> None:
    with pytest.raises(BundlingError, match="constructor_args"):
        dump_bundle(Env, constructor_args=value)  # type: ignore[arg-type]


def test_untried_python_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    monkeypatch.setattr("benchmax.bundle.dumping.running_python", lambda: "3.14")
    with pytest.raises(BundlingError, match=r"Python 3\.14"):
        dump_bundle(None)  # type: ignore[arg-type]


# metadata


def test_metadata_says_what_made_it() -> None:
    metadata = dump_bundle(Env, pip_dependencies=["Widget >= 1", "b"]).metadata
    assert metadata.pip_dependencies == ("b", "widget>=1")
    assert metadata.python_version == RUNNING
    assert metadata.benchmax_version.startswith("0.2.")
    assert metadata.env_class_source is not None
    assert metadata.env_class_source.startswith("class Env(Environment[object, RolloutAttempt]):\n")


@pytest.mark.parametrize("source", ["", "class Other: ...\n"])
def test_source_argument_is_taken_verbatim(source: str) -> None:
    assert dump_bundle(Env, env_class_source=source).metadata.env_class_source == source


@pytest.mark.parametrize("source", [b"class", 3, "\ud800"], ids=name_of)
def test_source_that_cannot_be_written_is_refused(source: object) -> None:
    with pytest.raises(BundlingError, match="env_class_source"):
        dump_bundle(Env, env_class_source=source)  # type: ignore[arg-type]


def test_class_made_by_exec_has_no_source() -> None:
    names: dict[str, object] = {"__name__": __name__, "Env": Env}
    exec("class Made(Env):\n    pass\n", names)
    made = names["Made"]
    assert isinstance(made, type)
    assert dump_bundle(made).metadata.env_class_source is None


def test_source_of_another_class_at_the_same_line_is_not_taken() -> None:
    line = next(
        number for number, text in enumerate(Path(__file__).read_text().splitlines()) if text.startswith("class Env(")
    )
    names: dict[str, object] = {"__name__": __name__, "Env": Env}
    exec("\n" * line + "class Made(Env):\n    pass\n", names)
    made = names["Made"]
    assert isinstance(made, type)
    assert dump_bundle(made).metadata.env_class_source is None


def test_source_of_a_decorated_or_nested_class_is_found() -> None:
    def unchanged(cls: type) -> type:
        return cls

    @unchanged
    class Nested(Env):
        pass

    source = dump_bundle(Nested).metadata.env_class_source
    assert source is not None
    assert source.lstrip().startswith("@unchanged\n")


# log


def test_dump_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="benchmax.bundle")
    dump_bundle(Env)
    assert [line.startswith("[bundle] dumped") for line in caplog.messages if "[bundle]" in line] == [True]


# what cannot be pickled


def test_unpicklable_argument_is_named() -> None:
    with pytest.raises(BundlingError, match=r"Failed to serialize .*constructor_args\['lock'\] \(_thread\.lock\)"):
        dump_bundle(Env, constructor_args={"fine": 1, "lock": threading.Lock()})


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("import threading\nclient = threading.Lock()\n" + ENV + method("return client"), "globals['client']"),
        (ENV + "    client = open('/dev/null', 'rb')\n", "Env.client"),
        (
            "def made():\n    gen = (i for i in [1])\n    return lambda: gen\nread = made()\n"
            + ENV
            + method("return read()"),
            "Env.answer → globals['read'] → closure['gen']",
        ),
        (
            "import threading\n" + ENV + "    def answer(self, *, lock=threading.Lock()):\n        return 1\n",
            "Env.answer → default['lock']",
        ),
        (
            "import threading\nclass Box:\n    def __init__(self):\n        self.slots = [threading.Lock()]\n"
            "box = Box()\n" + ENV + method("return box"),
            "Env.answer → globals['box'].slots[0]",
        ),
    ],
    ids=["global", "class attribute", "closure", "default", "inside an instance"],
)
def test_path_to_the_unpicklable_object_is_given(project: Project, module: str, path: str) -> None:
    project.write({"envmod.py": module})
    text = project.refusal()
    assert "Failed to serialize envmod.Env" in text
    assert path in text
    if "answer" in path:
        assert str(project.root / "envmod.py") in text


# what is put back


def test_registrations_are_undone_after_success_and_failure(project: Project) -> None:
    project.write(
        {
            "helper.py": "def triple(n):\n    return 3 * n\n",
            "envmod.py": env_module("import helper", answer="return helper.triple(2)"),
        }
    )
    check = (
        "import cloudpickle; assert cloudpickle.list_registry_pickle_by_value() == set(); result = sorted(sys.modules)"
    )
    assert project.dump("local_modules=[sys.modules['helper']]", after=check) is not None
    failing = """
        import threading, cloudpickle
        from benchmax.bundle import BundlingError
        try:
            dump_bundle(env_module.Env, constructor_args={"lock": threading.Lock()}, local_modules=[env_module])
        except BundlingError:
            pass
        else:
            raise AssertionError
        assert cloudpickle.list_registry_pickle_by_value() == set()
    """
    project.dump(before=failing)


def test_registration_of_the_author_survives(project: Project) -> None:
    project.write({"helper.py": "", "envmod.py": ENV})
    project.dump(
        "local_modules=[helper, env_module]",
        before="import cloudpickle, helper\ncloudpickle.register_pickle_by_value(helper)",
        after="assert cloudpickle.list_registry_pickle_by_value() == {'helper'}",
    )


def test_live_class_is_untouched(project: Project) -> None:
    project.write({"envmod.py": ENV + "    limits = {'turns': 3}\n" + method("return 1")})
    project.dump(
        before="was = dict(vars(env_module.Env)); module_was = dict(vars(env_module))",
        after="""
            now = vars(env_module.Env)
            assert now.keys() == was.keys() and all(now[key] is was[key] for key in was)
            assert vars(env_module).keys() == module_was.keys()
            assert all(vars(env_module)[key] is module_was[key] for key in module_was)
        """,
    )


def test_dumps_in_threads_wait_for_each_other(project: Project) -> None:
    project.write({"envmod.py": env_module(), "other.py": env_module()})
    together = """
        import cloudpickle, other, threading
        seen = []
        inside = threading.Event()
        class Second:
            def __reduce__(self):
                inside.set()
                seen.append(cloudpickle.list_registry_pickle_by_value())
                return (int, ())
        def dump_second():
            dump_bundle(other.Env, constructor_args={"x": Second()}, local_modules=[other])
        second = threading.Thread(target=dump_second)
        class First:
            def __reduce__(self):
                if second.ident is None:
                    second.start()
                # it never comes while this one lasts; without waiting there would be no time for it to come
                assert not inside.wait(0.3)
                return (int, ())
        dump_bundle(env_module.Env, constructor_args={"x": First()}, local_modules=[env_module])
        second.join()
        assert seen and all(names == {"other"} for names in seen), seen
        assert cloudpickle.list_registry_pickle_by_value() == set()
    """
    project.dump(after=together)


def test_module_imported_only_to_capture_it_is_forgotten_again(project: Project) -> None:
    project.write(
        {
            "pkg/__init__.py": "",
            "pkg/late.py": "import other\nVALUE = 5\n",
            "other.py": "",
            "envmod.py": env_module("""
                import importlib
                class Lazy:
                    def __reduce__(self):
                        return (importlib.import_module, ("pkg.late",))
            """),
        }
    )
    text = project.refusal("constructor_args={'late': env_module.Lazy()}")
    assert "missing local_modules=[pkg.late]" in text
    check = """
        from benchmax.bundle import BundlingError
        was = set(sys.modules)
        try:
            dump_bundle(env_module.Env, constructor_args={"late": env_module.Lazy()})
        except BundlingError:
            pass
        assert not {"pkg", "pkg.late", "other"} & set(sys.modules), set(sys.modules) - was
    """
    project.dump(before=check)


def test_this_process_keeps_its_registry() -> None:
    was = set(cloudpickle.list_registry_pickle_by_value())
    dump_bundle(Env, local_modules=[benchmax.bundle])
    assert cloudpickle.list_registry_pickle_by_value() == was
