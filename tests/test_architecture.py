"""How the packages hang together: who may import whom, what never happens outside of a worker, how large a file is."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("benchmax", "runner")
TEMPLATES = ROOT / "runner" / "authoring" / "templates"
"""Projects of their own, which are copied and never imported."""

TIERS: tuple[tuple[str, ...], ...] = (
    ("errors", "limits", "text"),
    ("fields", "protocol", "frames"),
    ("channel", "redaction", "spinning", "transcript"),
    ("sandbox",),
    ("environ", "process", "egress"),
    ("trials",),
    ("artifact", "shipment", "inspecting"),
    ("provision",),
    ("broker",),
    ("gateway",),
    ("record",),
    (
        "handle",
        "deadlines",
        "holding",
        "log_shelf",
        "calls",
        "rollout_call",
        "conversation",
        "variables",
        "reach",
        "launch",
        "intermediary",
        "inspection",
        "greeting",
        "trial_link",
        "auth_link",
        "obituary",
        "child",
        "pool",
    ),
    ("account", "isolated", "isolating"),
    ("models",),
    ("plan", "run", "recording", "packing", "proof", "report", "authoring", "validation"),
    ("service",),
    ("cli",),
)
"""Top-level names of `runner`, from the bottom up: each may import its own tier and those above it in this table."""
TIER_OF = {name: height for height, tier in enumerate(TIERS) for name in tier}

SHIPPED = frozenset({"errors", "limits", "text", "fields", "protocol", "frames", "channel", "spinning", "transcript"})
"""What of `runner` the worker has, beside itself."""

LAZY_FILES = frozenset({"runner/__init__.py", "runner/cli/__init__.py"})
"""Load their own parts by name when first used, so that importing the package and `--help` stay instant."""

LAZY_LIBRARIES = frozenset(
    {
        "alembic", "cloudpickle", "cryptography", "fastapi", "harbor", "httpx", "importlib.metadata", "jinja2",
        "obstore", "openai", "pickle", "pip", "platformdirs", "prometheus_client", "psycopg", "python_discovery",
        "rich", "sqlalchemy", "starlette", "urllib.request", "uv", "uvicorn", "virtualenv", "xllamacpp",
    }
)  # fmt: skip
"""Cost tens of milliseconds or more, or are optional: imported where they are used."""

LAZY_EDGES = frozenset(
    {
        # load the HTTP stack
        ("benchmax.auth", "benchmax.transport"),
        ("benchmax.envs.base.env", "benchmax.transport"),
        ("benchmax.rewards.judge", "benchmax.transport"),
        # stands in the way of every start, and networks of their own are not made in all
        ("runner.sandbox.launcher", "json"),
        ("runner.sandbox.launcher", "socket"),
        # an environment of another kind needs no loop
        ("benchmax.envs", "benchmax.envs.base"),
        # loads the parser of requirements
        ("benchmax.bundle.dependencies", "benchmax.bundle.requirements"),
        # a worker loads bundles and packs none
        ("benchmax.bundle", "benchmax.bundle.dumping"),
        # reading metadata and digests loads neither
        ("benchmax.bundle.dumping", "benchmax.envs"),
        ("benchmax.bundle.loading", "benchmax.envs"),
        ("runner.worker.pack", "benchmax.bundle"),
        # not in every release of benchmax, and of no use in most environments
        ("runner.worker.trials", "benchmax.envs.harbor.opening"),
    }
)

UNPICKLERS = frozenset(
    {"pickle", "cPickle", "_pickle", "cloudpickle", "marshal", "dill", "shelve", "jsonpickle", "joblib"}
)
BY_NAME = frozenset({"import_module", "__import__", "run_path", "run_module", "spec_from_file_location"})

MAX_LINES = 450
EMPTY_WORDS = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "core"})


@dataclass(frozen=True)
class Import:
    """One import statement: the modules it may load, and where it stands."""

    targets: tuple[str, ...]
    in_function: bool
    for_types: bool
    line: int


@dataclass(frozen=True)
class Module:
    path: Path
    name: str
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def file(self) -> str:
        return str(self.path.relative_to(ROOT))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, tree: ast.Module) -> Iterator[Import]:
    package = path.relative_to(ROOT).parent.parts

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            typed = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            if isinstance(child, ast.Import):
                yield Import(tuple(alias.name for alias in child.names), in_function, for_types, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else ()
                stem = ".".join([*base, *([child.module] if child.module else [])])
                names = tuple(f"{stem}.{alias.name}" for alias in child.names)
                # `from package import module` loads the module, `from module import name` the module it names
                known = tuple(name if is_module(name) else stem for name in names)
                yield Import(known, in_function, for_types, child.lineno)
            yield from visit(child, inner, typed)

    yield from visit(tree, False, False)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return name.split(".")[0] in PACKAGES and (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file())


def load() -> list[Module]:
    modules = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if TEMPLATES in path.parents:
                continue
            tree = ast.parse(path.read_text("utf-8"))
            modules.append(Module(path, module_name(path), tree, tuple(imports_of(path, tree))))
    return modules


MODULES = load()
RUNNER = [module for module in MODULES if module.name.split(".")[0] == "runner"]
WORKER = [module for module in RUNNER if module.name.startswith("runner.worker")]
HOST = [module for module in RUNNER if module not in WORKER]


def by_file(modules: list[Module]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", modules, ids=lambda module: module.file)


SERVING = frozenset(
    module.name
    for module in HOST
    if module.name.startswith("runner.service")
    or any(
        target.startswith("runner.service")
        for statement in module.imports
        if not (statement.in_function or statement.for_types)
        for target in statement.targets
    )
)
"""The service, and the commands that need it: all that may need the libraries of the extra `service`."""

SERVICE_LIBRARIES = frozenset({"alembic", "fastapi", "jinja2", "obstore", "prometheus_client", "psycopg", "sqlalchemy"})
HAS_SERVICE = importlib.util.find_spec("sqlalchemy") is not None

BY_ALEMBIC = "runner.service.database.migrations.env"
"""A script that alembic runs, which cannot be imported."""


def part(name: str) -> str:
    """The top-level part of `runner` that a module belongs to; empty for the package itself."""
    return name.split(".")[1] if "." in name else ""


# -- who imports whom -----------------------------------------------------------------------------------------


def test_every_part_of_the_runner_has_its_place() -> None:
    assert {part(module.name) for module in RUNNER} - {"", "worker"} == TIER_OF.keys()


@by_file(HOST)
def test_imports_point_one_way(module: Module) -> None:
    for statement in module.imports:
        for target in statement.targets:
            if target.split(".")[0] != "runner" or module.name == "runner":
                continue
            assert part(target), f"{module.file}:{statement.line} imports the package itself"
            assert part(target) != "worker", f"{module.file}:{statement.line} imports the worker's code"
            assert TIER_OF[part(target)] <= TIER_OF[part(module.name)], f"{module.file}:{statement.line}: {target}"


@by_file([module for module in MODULES if module.name.split(".")[0] == "benchmax"])
def test_the_library_never_imports_the_runner(module: Module) -> None:
    targets = {target.split(".")[0] for statement in module.imports for target in statement.targets}
    assert "runner" not in targets


@by_file(WORKER)
def test_the_worker_imports_only_what_is_there_with_it(module: Module) -> None:
    for statement in module.imports:
        for target in statement.targets:
            head = target.split(".")[0]
            if head == "runner":
                assert part(target) in SHIPPED | {"worker"}, f"{module.file}:{statement.line}: {target}"
            else:
                assert head in sys.stdlib_module_names | {"benchmax", "msgspec"}, f"{module.file}:{statement.line}"


@by_file([module for module in WORKER if module.name != "runner.worker.boot"])
def test_the_worker_names_the_runner_only_relatively(module: Module) -> None:
    # it is loaded under another package name, where `runner` may be a module of the bundle
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").split(".")[0] != "runner"
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] != "runner" for alias in node.names)


@by_file([module for module in RUNNER if part(module.name) in SHIPPED])
def test_what_is_shipped_into_the_worker_needs_nothing_that_is_not(module: Module) -> None:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                assert node.level == 1
                assert (node.module or "").split(".")[0] in SHIPPED
            else:
                assert (node.module or "").split(".")[0] in sys.stdlib_module_names | {"msgspec"}
        elif isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names | {"msgspec"}


def test_the_shipment_has_exactly_these_modules() -> None:
    from runner import shipment

    assert {name.removesuffix(".py") for name in shipment.MODULES} == SHIPPED


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module.name for module in MODULES}
    graph = {
        module.name: {
            target
            for statement in module.imports
            if not (statement.in_function or statement.for_types)
            for target in statement.targets
            if target in names and target != module.name
        }
        for module in MODULES
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


@by_file(MODULES)
def test_imports_stand_at_the_top_except_of_what_is_slow_or_optional(module: Module) -> None:
    for statement in module.imports:
        if not statement.in_function:
            continue
        for target in statement.targets:
            allowed = any(target == name or target.startswith(f"{name}.") for name in LAZY_LIBRARIES) or any(
                module.name == source and (target == goal or target.startswith(f"{goal}."))
                for source, goal in LAZY_EDGES
            )
            assert allowed, f"{module.file}:{statement.line} imports {target} inside a function"


# -- what happens in a worker only ----------------------------------------------------------------------------


@by_file(HOST)
def test_nothing_outside_of_the_worker_can_unpickle_or_run_data(module: Module) -> None:
    for statement in module.imports:
        for target in statement.targets:
            assert not UNPICKLERS & set(target.split(".")), f"{module.file}:{statement.line} imports {target}"
            assert target not in ("benchmax.bundle.loading", "runpy", "code"), (
                f"{module.file}:{statement.line}: {target}"
            )
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id in ("eval", "exec", "compile", "__import__"):
            pytest.fail(f"{module.file}:{node.lineno} uses {node.id}")
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            assert name != "load_bundle", f"{module.file}:{node.lineno} loads a bundle"
            if name in BY_NAME:
                assert module.file in LAZY_FILES, f"{module.file}:{node.lineno} imports by name"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom):
            assert not {alias.name for alias in node.names} & (BY_NAME | {"load_bundle"}), (
                f"{module.file}:{node.lineno}"
            )


def test_importing_everything_of_the_caller_loads_nothing_that_unpickles() -> None:
    names = [module.name for module in HOST if not module.name.startswith(("runner.models", "runner.provision."))]
    without = [name for name in names if name not in SERVING]
    serving = [name for name in names if name in SERVING and name != BY_ALEMBIC] if HAS_SERVICE else []
    code = (
        f"import sys\nfor name in {without}: __import__(name)\nprint(*sys.modules)\n"
        f"for name in {serving}: __import__(name)\nprint(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    loaded, at_last = (set(line.split()) for line in result.stdout.splitlines())
    assert not SERVICE_LIBRARIES & loaded
    assert not {"cloudpickle", "dill", "openai", "httpx", "httpx2"} & at_last


# -- files ----------------------------------------------------------------------------------------------------


@by_file(MODULES)
def test_a_module_is_short_enough_to_read(module: Module) -> None:
    assert len(module.path.read_text("utf-8").splitlines()) <= MAX_LINES


@by_file(MODULES)
def test_a_module_is_named_after_something(module: Module) -> None:
    assert not EMPTY_WORDS & set(module.name.split("."))


@by_file(MODULES)
def test_a_module_says_what_it_is(module: Module) -> None:
    if module.path.read_text("utf-8").strip():
        assert ast.get_docstring(module.tree)


@by_file(
    [
        module
        for module in MODULES
        if any(isinstance(n, ast.Assign) and "__all__" in ast.unparse(n.targets[0]) for n in module.tree.body)
        and (HAS_SERVICE or module.name not in SERVING)
    ]
)
def test_what_a_module_lists_as_public_is_sorted_and_there(module: Module) -> None:
    loaded = importlib.import_module(module.name)
    listed: list[str] = loaded.__all__
    # as ruff has it: constants, classes, everything else
    assert listed == sorted(set(listed), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    for name in listed:
        assert getattr(loaded, name) is not None
