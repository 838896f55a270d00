"""What installers and builds print is told by kind, from outputs as they really were."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import BuildError, IndexUnreachableError, ProvisionError, RequirementError
from runner.limits import Limits
from runner.provision import pip_output, uv_output
from runner.provision.build_failure import build_failure
from runner.provision.cache import Cache
from runner.provision.command import Finished
from runner.provision.confinement import Confinement
from runner.provision.diagnosis import Failure, InstallerFailedError, conflict, race
from runner.provision.interpreter import Interpreter
from runner.provision.options import ProvisionOptions
from runner.provision.progress import Progress, ProvisionEvent
from runner.provision.retry import once_more_after_a_race
from runner.provision.workspace import Workspace
from runner.sandbox.policy import SandboxPolicy


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    options = ProvisionOptions(index_url="https://index.example/simple")
    return Workspace(
        interpreter=Interpreter(
            path=Path("/opt/python"),
            implementation="cpython",
            version="3.12.1",
            series="3.12",
            prefix=Path("/opt"),
            platform="linux-x86_64",
            free_threaded=False,
        ),
        cache=Cache(tmp_path / "cache"),
        target=tmp_path / "venv",
        scratch=tmp_path,
        options=options,
        index=options.indexes(),
        limits=Limits(),
        progress=Progress(None),
        confinement=Confinement(policy=SandboxPolicy()),
    )


def uv(said: str, space: Workspace) -> Failure:
    return uv_output.diagnose(Finished(2, "", said, "exit code 2"), space)


def pip(said: str, space: Workspace) -> Failure:
    return pip_output.diagnose(Finished(1, "", said, "exit code 1"), space)


def uv_build(said: str) -> str:
    body = "\n".join(f"         {line}" for line in said.splitlines())
    return (
        "error: Failed to build `pack==1.0`\n  cause: The build backend returned an error\n"
        "  cause: Call to `setuptools.build_meta.build_wheel` failed (exit status: 1)\n\n"
        f"         [stderr]\n{body}\n\n"
        "hint: `pack` (v1.0) was included because `parent` (v2.0) depends on `pack`\n"
    )


def pip_build(said: str) -> str:
    body = "\n".join(f"      {line}" for line in said.splitlines())
    return (
        "Collecting parent\nCollecting pack>=1 (from parent)\n  error: subprocess-exited-with-error\n  \n"
        "  × Building wheel for pack (pyproject.toml) did not run successfully.\n  │ exit code: 1\n"
        f"  ╰─> [{len(said.splitlines())} lines of output]\n{body}\n      [end of output]\n  \n"
        "  note: This error originates from a subprocess, and is likely not a problem with pip.\n"
        "  ERROR: Failed building wheel for pack\nerror: failed-wheel-build-for-install\n"
    )


BUILDS = {
    "setuptools without gcc": ("error: [Errno 2] No such file or directory: 'gcc'", "no C compiler", "such as gcc"),
    "distutils without gcc": ("error: command 'gcc' failed: No such file or directory", "no C compiler", "gcc"),
    "gcc of a distribution": (
        "error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory",
        "no C compiler",
        "gcc",
    ),
    "gcc by path": ("error: command '/opt/bin/gcc-12' failed: No such file or directory", "no C compiler", "gcc"),
    "clang": ("error: command 'clang' failed: No such file or directory", "no C compiler", "gcc"),
    "a makefile": ("make: cc: No such file or directory\n/bin/sh: 1: cc: not found", "no C compiler", "gcc"),
    "meson": (
        "../meson.build:1:0: ERROR: Unknown compiler(s): [['cc'], ['gcc'], ['clang']]\n"
        "Running `cc --version` gave \"[Errno 2] No such file or directory: 'cc'\"",
        "no C compiler",
        "gcc",
    ),
    "meson without c++": (
        "ERROR: Unknown compiler(s): [['c++'], ['g++'], ['clang++']]",
        "no C++ compiler",
        "g++",
    ),
    "cmake": ("CMake Error: No CMAKE_C_COMPILER could be found.", "no C compiler", "gcc"),
    "cmake without c++": ("CMake Error: No CMAKE_CXX_COMPILER could be found.", "no C++ compiler", "g++"),
    "autoconf": ("configure: error: no acceptable C compiler found in $PATH", "no C compiler", "gcc"),
    "c++": ("error: command 'g++' failed: No such file or directory", "no C++ compiler", "g++"),
    "rust's linker": (
        "error: linker `cc` not found\n  = note: No such file or directory (os error 2)",
        "no C compiler",
        "gcc",
    ),
    "rust": ("error: can't find Rust compiler", "no Rust compiler", "Rust"),
    "maturin": ("Cargo, the Rust package manager, is not installed or is not on PATH.", "no Rust compiler", "Rust"),
    "fortran": ("error: [Errno 2] No such file or directory: 'gfortran'", "no Fortran compiler", "gfortran"),
    "cmake itself": ("FileNotFoundError: [Errno 2] No such file or directory: 'cmake'", "no program 'cmake'", ""),
    "pkg-config": ("/bin/sh: 1: pkg-config: not found\nRuntimeError: no blas", "no program 'pkg-config'", ""),
    "python's headers": ("pack.c:1:10: fatal error: Python.h: No such file or directory", "no Python headers", ""),
    "a library's header": (
        "pack.c:3:10: fatal error: libpq-fe.h: No such file or directory\n"
        "error: command '/usr/bin/gcc' failed with exit code 1",
        "needs the header 'libpq-fe.h'",
        "library",
    ),
    "a library": ("/usr/bin/ld: cannot find -lmysqlclient: No such file", "needs the library 'mysqlclient'", ""),
    "an undeclared module": (
        'Traceback (most recent call last):\n  File "setup.py", line 1, in <module>\n'
        "ModuleNotFoundError: No module named 'torch'",
        "needs 'torch' to build, which it does not declare",
        "wheel",
    ),
    "a module python lost": (
        "ModuleNotFoundError: No module named 'distutils'",
        "needs 'distutils' to build, which Python 3.12 no longer has",
        "older Python",
    ),
    "a handled absence before the real reason": (
        "ModuleNotFoundError: No module named 'numpy'\nusing the slow way\nValueError: version is not a string",
        "cannot be built: ValueError: version is not a string",
        "",
    ),
    "an assertion": ("AssertionError", "cannot be built: AssertionError", ""),
    "silence": ("", "cannot be built, and its build says no reason", ""),
    # a name that only begins like a compiler's
    "a missing data file": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'gcc-data.txt'",
        "cannot be built: FileNotFoundError: [Errno 2] No such file or directory: 'gcc-data.txt'",
        "",
    ),
}


@pytest.mark.parametrize("wrapped", [uv_build, pip_build])
@pytest.mark.parametrize("case", BUILDS)
def test_reason_of_a_failed_build(case: str, wrapped: object, space: Workspace) -> None:
    said, reason, remedy = BUILDS[case]
    failure = uv(uv_build(said), space) if wrapped is uv_build else pip(pip_build(said), space)
    assert failure.kind == "build"
    assert isinstance(failure.error, BuildError)
    assert failure.error.message.startswith("build failed: ")
    assert reason in failure.error.message
    assert "'pack" in failure.error.message
    assert "which parent" in failure.error.message
    assert remedy in failure.error.hint
    assert "\n" not in failure.error.message + failure.error.hint


def test_detail_of_a_failed_build_is_the_end_of_what_it_said_and_the_installers_advice() -> None:
    said = "\n".join([*(f"compiling part {n}" for n in range(500)), "RuntimeError: the reason"])
    failure = build_failure("pack==1.0", uv_build(said) + "\nhint: Try it\n  with less.\n")
    detail = failure.error.detail
    assert "RuntimeError: the reason" in detail
    assert "compiling part 499" in detail
    assert "compiling part 3\n" not in detail
    assert "hint: Try it\n  with less." in detail
    assert detail.index("RuntimeError") < detail.index("hint: Try it")


UV_RACES = (
    "error: Failed to download `tzdata==2026.6`\n  cause: Failed to write to the distribution cache\n"
    "  cause: failed to rename file from {uv}/.tmp1 to {uv}/archive-v0/MKO: No such file or directory (os error 2)",
    "error: Failed to install: six-1-py3-none-any.whl (six==1)\n"
    "  cause: failed to read directory `{uv}/archive-v0/2mw`: No such file or directory (os error 2)",
    "error: Failed to download `tzdata==2026.6`\n  cause: Failed to write to the client cache\n"
    "  cause: failed to write to file `{uv}/wheels-v8/index/e25/tzdata/.tmpD`: No such file or directory (os error 2)",
    "error: Failed to download `six==1`\n  cause: Hash mismatch for `six==1`\n\n         Expected:\n"
    "           sha256:ff70335d468e7eb6ec65b95b99d3a2836546063f63acc5171de367e834932a81\n\n         Computed:\n"
    "           sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
)


@pytest.mark.parametrize("said", UV_RACES)
def test_vanished_cache_files_are_a_race_with_somebody_else(said: str, space: Workspace) -> None:
    assert uv(said.format(uv=space.cache.uv_dir), space).kind == "race"


def test_pips_vanished_cache_file_is_a_race(space: Workspace) -> None:
    path = space.cache.pip_dir / "http-v2/a/b"
    said = f"ERROR: Could not install packages due to an OSError: [Errno 2] No such file or directory: '{path}'"
    assert pip(said, space).kind == "race"


def test_files_that_are_missing_elsewhere_are_no_race(space: Workspace) -> None:
    assert race("error: [Errno 2] No such file or directory: '/home/me/data.csv'", space) is None
    traceback = (
        f'  File "{space.cache.uv_dir}/sdists-v11/pack/src/backend.py", line 3, in build_wheel\n'
        "FileNotFoundError: [Errno 2] No such file or directory: 'gcc'"
    )
    assert race(traceback, space) is None
    assert uv(uv_build(traceback), space).kind == "build"


OTHERS = {
    "certificate": (
        "error: Failed to download `sympy==1.14.0`\n  cause: Failed to fetch: https://files.example/sympy.whl\n"
        "  cause: error sending request for url (https://files.example/sympy.whl)\n  cause: client error (Connect)\n"
        "  cause: invalid peer certificate: UnknownIssuer",
        "unreachable",
        "the server at files.example cannot be reached: invalid peer certificate: UnknownIssuer",
        "SSL_CERT_FILE",
    ),
    "proxy that wants a login": (
        "error: Request failed after 2 retries\n  cause: Failed to fetch: https://index.example/simple/six/\n"
        "  cause: tunnel error: unsuccessful (407 Proxy Authentication Required)",
        "authentication",
        "the proxy on the way to the package index at index.example refuses access: 407",
        "proxy variables",
    ),
    "repository that asks for a login": (
        "error: Failed to download and build `pack @ git+https://git.example/pack.git`\n  cause: Git operation failed\n"
        "  cause: failed to clone into: /c/uv/git-v2/db/1\n  cause: process didn't exit successfully: `git fetch`\n"
        "         --- stderr\n         fatal: could not read Username for 'https://git.example': "
        "terminal prompts disabled",
        "missing-file",
        "the repository of 'pack' cannot be fetched: could not read Username",
        "address and revision",
    ),
    "disk": (
        "error: Failed to download `six==1`\n  cause: failed to write `/c/uv/x`: No space left on device (os error 28)",
        "disk",
        "No space left on device",
        "",
    ),
    "disk, the other way round": (
        "ERROR: Could not install packages due to an OSError: [Errno 122] Disk quota exceeded: '/c/pip/x'",
        "disk",
        "Disk quota exceeded",
        "",
    ),
    "something new": ("error: the moon is in the way\n  cause: tides", "other", "the moon is in the way", ""),
    "nothing at all": ("", "other", "it said nothing", ""),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_failures_by_kind(case: str, space: Workspace) -> None:
    said, kind, message, hint = OTHERS[case]
    failure = uv(said, space)
    assert failure.kind == kind
    assert message in failure.error.message
    assert hint in failure.error.hint
    assert "\n" not in failure.error.message


def test_long_conflict_is_still_one_line() -> None:
    failure = conflict([], "because " * 500, "everything")
    assert "\n" not in failure.error.message
    assert len(failure.error.message) < 600


def test_conflict_names_only_what_is_contested() -> None:
    failure = conflict([("left", "shared>=2"), ("", "shared<2"), ("left", "unrelated>=1")], "", "")
    assert "on 'shared': left wants shared>=2, shared<2 is asked for" in failure.error.message
    assert "unrelated" not in failure.error.message


def failed(kind: str) -> InstallerFailedError:
    error = RequirementError("no") if kind == "conflict" else ProvisionError("the cache changed")
    return InstallerFailedError(Failure(kind, error))  # type: ignore[arg-type]


async def test_race_is_tried_once_more_and_told() -> None:
    events: list[ProvisionEvent] = []
    left = [failed("race")]

    async def work() -> str:
        if left:
            raise left.pop()
        return "done"

    assert await once_more_after_a_race(work, Progress(events.append)) == "done"
    assert [event.message for event in events] == ["trying once more: the cache changed"]


async def test_second_race_ends_it() -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        raise failed("race")

    with pytest.raises(ProvisionError, match="the cache changed"):
        await once_more_after_a_race(work, Progress(None))
    assert len(tries) == 2


@pytest.mark.parametrize(
    "kind", ["unknown-package", "no-version", "conflict", "no-wheel", "build", "hash", "disk", "unreachable"]
)
async def test_what_ends_the_same_way_each_time_is_not_tried_again(kind: str) -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(1)
        raise failed(kind)

    with pytest.raises(ProvisionError):
        await once_more_after_a_race(work, Progress(None))
    assert len(tries) == 1


def test_server_errors_are_not_taken_for_an_unknown_package(space: Workspace) -> None:
    log = "Could not fetch URL https://index.example/simple/six/: connection error: too many 503 error responses - skip"
    said = "ERROR: No matching distribution found for six"
    failure = pip_output.diagnose(Finished(1, "", said, "exit code 1"), space, log=log)
    assert isinstance(failure.error, IndexUnreachableError)
    assert "503 Service Unavailable" in failure.error.message
