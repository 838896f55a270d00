"""Examines an environment of a project in a clean interpreter, and checks that the process is left as it was."""

from __future__ import annotations

from typing import Any, TypedDict

from tests.contract.bundle_lab import Project

SECRET = "zq-" + "0123456789" * 2
"""The value of the variable FAKE_API_KEY while something is examined."""


class Found(TypedDict):
    severity: str
    code: str
    what: str
    message: str
    fix: str
    file: str
    line: int


EXAMINE = """
    import cloudpickle, copyreg, importlib, logging, os, sys, threading, warnings
    from benchmax.bundle import examine
    os.environ["FAKE_API_KEY"] = {secret!r}
    module = importlib.import_module({module!r})
    def state():
        loggers = list(logging.root.manager.loggerDict.items())
        files = [(name, str(getattr(one, "__file__", None))) for name, one in sys.modules.items()]
        return dict(
            modules=sorted(name for name, file in files if file.startswith(os.getcwd())),
            path=list(sys.path), finders=list(sys.meta_path), environ=dict(os.environ), folder=os.getcwd(),
            by_value=sorted(cloudpickle.list_registry_pickle_by_value()), reducers=dict(copyreg.dispatch_table),
            loggers=dict((n, (one.level, list(one.handlers))) for n, one in loggers if getattr(one, "handlers", 0)),
            handlers=list(logging.root.handlers), warnings=list(warnings.filters), names=sorted(vars(module)),
            attributes=sorted(vars(module.Env)), threads=threading.active_count(), limit=sys.getrecursionlimit(),
            descriptors=sorted(os.listdir("/proc/self/fd")),
        )
    before = state()
    report = examine(module.Env, constructor_args={arguments}, local_modules=[module])
    changed = [(name, before[name], value) for name, value in state().items() if before[name] != value]
    result = [report.as_json()["findings"], repr(changed)]
"""


def examined(project: Project, module: str, arguments: str = "{}", more: str = "") -> list[Found]:
    script = EXAMINE.format(secret=SECRET, module=module, arguments=arguments) + more
    result: Any = project.lab.run(script, cwd=project.root, path=project.path or [project.root])
    found: list[Found] = result[0]
    assert result[1] == "[]", result[1]
    return found
