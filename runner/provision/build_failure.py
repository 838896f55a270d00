"""Why a source distribution could not be built, read out of what its build printed.

Comes in: the installer's output. Goes out: a `Failure` whose message names package and cause, whose hint says what to
do, and whose detail is the end of the build's own output, where the reason stands.
"""

from __future__ import annotations

import re
from typing import Final

from runner.errors import BuildError
from runner.provision.diagnosis import Failure, bare_name, clip, one_line

TAIL_LINES: Final = 60

_CC: Final = r"(?:[\w.-]+-)?(?:gcc|cc|clang)(?:-[\d.]+)?"
_CXX: Final = r"(?:[\w.-]+-)?(?:g\+\+|c\+\+|clang\+\+)(?:-[\d.]+)?"


def _absent(program: str) -> str:
    """Match every usual way of saying that a program is not there."""
    end = r"(?![\w.+-])"
    return (
        rf"command '?(?:/\S*/)?{program}'? failed: No such file"
        rf"|No such file or directory: '(?:/\S*/)?{program}'"
        rf"|unable to execute '?(?:/\S*/)?{program}'?: No such file"
        rf"|(?<![\w.+/-])(?:/\S*/)?{program}: (?:command )?not found"
        rf"|[Pp]rogram '?{program}{end}'? not found"
        rf"|linker `{program}` not found"
        rf"|failed to execute command:? .*{program}{end}.*\(os error 2\)"
    )


_MISSING: Final = (
    (
        re.compile(
            rf"{_absent(_CXX)}|No CMAKE_CXX_COMPILER could be found|CMAKE_CXX_COMPILER not set"
            rf"|Unknown compiler\(s\): \[+'c\+\+'"
        ),
        "no C++ compiler",
        "Install one (such as g++)",
    ),
    (
        re.compile(
            rf"{_absent(_CC)}|No CMAKE_C_COMPILER could be found|CMAKE_C_COMPILER not set|Unknown compiler\(s\)"
            r"|no acceptable C compiler",
            re.IGNORECASE,
        ),
        "no C compiler",
        "Install one (such as gcc)",
    ),
    (
        re.compile(
            rf"{_absent('(?:cargo|rustc|rustup)')}|can't find Rust compiler|Rust not found"
            r"|Cargo, the Rust package manager"
        ),
        "no Rust compiler",
        "Install Rust into the system's folders",
    ),
    (re.compile(rf"{_absent('gfortran')}|No Fortran compiler", re.I), "no Fortran compiler", "Install gfortran"),
    (re.compile(r"fatal error: Python\.h: No such file"), "no Python headers", "Install this Python's headers"),
)
_TOOL: Final = re.compile(_absent(r"(cmake|ninja|make|pkg-config|pkgconf|swig|git|protoc|nvcc|autoreconf)"))
_HEADER: Final = re.compile(r"fatal error: (\S+\.h\w*): No such file")
_LIBRARY: Final = re.compile(r"cannot find -l([\w.+-]+)")
_NO_MODULE: Final = re.compile(r"No module named '?([\w.]+)'?")
_ERROR_LINE: Final = re.compile(
    r"^[\s│╰─>×]*((?:[A-Za-z_][\w.]*(?:Error|Exception|Exit)|error|fatal(?: error)?|ERROR)\b.*)$"
)
_NOT_ITS_OWN: Final = re.compile(
    r"^(?:error|ERROR): (?:subprocess-exited|metadata-generation|failed-wheel-build|backend-unavailable)"
    r"|^(?:error|ERROR): Failed (?:to build|building)"
    r"|^ERROR: (?:Could not|No matching)",
)
_BLOCKS: Final = (
    # pip's, then uv's
    re.compile(r"╰─> \[\d+ lines of output\]\n(.*?)\n\s*\[end of output\]", re.DOTALL),
    re.compile(r"^\s*\[std(?:err|out)\]\n(.*?)(?=^\s*\[std(?:err|out)\]$|^hint:|\Z)", re.DOTALL | re.MULTILINE),
)
_GONE: Final = {
    **dict.fromkeys(("asynchat", "asyncore", "distutils", "imp", "smtpd"), "3.12"),
    **dict.fromkeys(("cgi", "cgitb", "crypt", "imghdr", "nntplib", "pipes", "telnetlib", "xdrlib", "lib2to3"), "3.13"),
}
"""Modules of the standard library that old builds want, and the series that no longer has them."""


def build_failure(package: str, output: str, *, wanted_by: str = "", hint: str = "") -> Failure:
    """Say why a source distribution could not be built.

    Args:
        package: Its name, with the version where that is known.
        output: Everything the installer printed.
        wanted_by: Which package wants it; empty for what was asked for directly.
        hint: The installer's own advice.
    """
    said = _own_output(output)
    what, remedy = _reason(said or output)
    by = f", which {wanted_by} wants" if wanted_by else ""
    if remedy:
        remedy = f"{remedy}, or ask for a version that has a wheel for this Python."
    else:
        remedy = "The detail has the end of its output. A version that has a wheel for this Python needs no build."
    # the installer's advice stands at its end, after the build's own words
    advice = re.findall(r"^hint: .*?(?=^hint: |\Z)", output, re.DOTALL | re.MULTILINE)
    tail = "\n".join([*(said or output).rstrip().splitlines()[-TAIL_LINES:], "", *(text.strip() for text in advice)])
    return Failure(
        "build",
        BuildError(
            f"build failed: {what} for {package!r}{by}."
            if what.startswith("no ")
            else f"build failed: {package!r}{by}{',' if by else ''} {what}.",
            hint=f"{remedy} {one_line(hint)}." if hint else remedy,
            detail=clip(tail),
        ),
        frozenset({bare_name(package)}),
    )


def _reason(said: str) -> tuple[str, str]:
    for pattern, what, remedy in _MISSING:
        if pattern.search(said):
            return what, remedy
    if match := _TOOL.search(said):
        return f"no program {next(filter(None, match.groups()))!r}", "Install it into the system's folders"
    if match := _HEADER.search(said):
        return (
            f"needs the header {match[1]!r}, which is not there",
            "Install the library it belongs to, with its headers",
        )
    if match := _LIBRARY.search(said):
        return f"needs the library {match[1]!r}, which is not there", "Install it"
    lines = [found[1].strip() for line in said.splitlines() if (found := _ERROR_LINE.match(line))]
    own = [line for line in lines if not _NOT_ITS_OWN.match(line)]
    last = own[-1] if own else ""
    if match := _NO_MODULE.search(last):
        if series := _GONE.get(match[1].partition(".")[0]):
            return f"needs {match[1]!r} to build, which Python {series} no longer has", "Bundle for an older Python"
        return f"needs {match[1]!r} to build, which it does not declare", ""
    return (f"cannot be built: {one_line(last)}" if last else "cannot be built, and its build says no reason"), ""


def _own_output(output: str) -> str:
    """Return what the build itself printed, without what the installer said around it."""
    for pattern in _BLOCKS:
        if blocks := pattern.findall(output):
            return "\n".join(str(block) for block in blocks)
    return ""
