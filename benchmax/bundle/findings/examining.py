"""From an environment class to a report: what is packed, and everything that is wrong with it."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Final

from benchmax.bundle.capture.references import find_references
from benchmax.bundle.capture.serializer import capture_session
from benchmax.bundle.capture.sources import SourceScope
from benchmax.bundle.dependencies import normalize_dependencies
from benchmax.bundle.digest import Bundle
from benchmax.bundle.dumping import dump_bundle
from benchmax.bundle.errors import BundlingError, Rule
from benchmax.bundle.findings import credentials, hints, modules, objects, paths, state
from benchmax.bundle.findings.finding import ByReference, Contributor, Finding, Report, in_order
from benchmax.bundle.findings.travel import Travel
from benchmax.bundle.findings.walk import Walk

_EXPLAINED_BY: Final[Mapping[Rule, frozenset[str]]] = MappingProxyType(
    {
        "serialize": frozenset({"unpicklable"}),
        "local": frozenset({"by-name-only", "uncaptured-module"}),
        "external": frozenset({"by-name-only", "external-source"}),
        "delayed": frozenset({"delayed-import"}),
    }
)


def examine(
    env_class: type,
    *,
    constructor_args: Mapping[str, object] | None = None,
    pip_dependencies: Sequence[str] | None = None,
    local_modules: Iterable[ModuleType] | None = None,
    env_class_source: str | None = None,
    auto_local_modules: bool = True,
) -> Report:
    """Pack an environment class as `dump_bundle` does, and say everything that is wrong with it at once.

    The process is left as it was. Nothing is constructed or run: whether the bundle loads elsewhere is for a fresh
    process to find out.

    Args:
        env_class: As for `dump_bundle`.
        constructor_args: As for `dump_bundle`.
        pip_dependencies: As for `dump_bundle`.
        local_modules: As for `dump_bundle`.
        env_class_source: As for `dump_bundle`.
        auto_local_modules: As for `dump_bundle`.

    Returns:
        The report; its `bundle` is `None` if `dump_bundle` refuses the class, for reasons that are among the findings.
    """
    explicit = tuple(local_modules or ())
    bundle, refusal = None, None
    try:
        bundle = dump_bundle(
            env_class,
            constructor_args=constructor_args,
            pip_dependencies=pip_dependencies,
            local_modules=explicit,
            env_class_source=env_class_source,
            auto_local_modules=auto_local_modules,
        )
    except BundlingError as error:
        refusal = error
        if not error.rule:
            # not a class that could be looked at, or arguments that are none
            return _report(_name(env_class), [_refused(env_class, error)], None, (), (), {})
    secrets = credentials.secret_variables(os.environ)
    walk = _walk(env_class, dict(constructor_args or {}), explicit, secrets, auto=auto_local_modules)
    packages = modules.Packages(normalize_dependencies(() if pip_dependencies is None else pip_dependencies))
    findings = list(_findings(env_class, walk, packages, secrets))
    if bundle is not None:
        findings.extend(_in_bundle(env_class, walk, bundle, findings, secrets))
    elif refusal is not None and not _explains(findings, refusal.rule):
        findings.append(_refused(env_class, refusal))
    # reading a pickle takes longer than everything else, so only if what was looked at is not all of it
    wanted = tuple(walk.references) if bundle is None or walk.complete else find_references(bundle.pickled).modules
    return _report(
        _name(env_class),
        findings,
        bundle,
        tuple(Contributor(name, size) for name, size in walk.sizes.most_common() if size),
        modules.by_reference([name for name in wanted if not walk.travel.is_by_value(name)], packages),
        secrets,
    )


def _walk(
    env_class: type,
    arguments: Mapping[str, object],
    explicit: Sequence[ModuleType],
    secrets: Mapping[str, str],
    *,
    auto: bool,
) -> Walk:
    names = [module.__name__ for module in explicit]
    scope = SourceScope.of_modules([env_class.__module__, *names])
    # an object may look at cloudpickle's registry when it is asked how it pickles
    with capture_session(explicit, scope):
        watched = {name: value.encode("utf-8", "surrogateescape") for name, value in secrets.items()}
        return Walk(env_class, arguments, Travel(names, scope, auto=auto), watched)


def _findings(env_class: type, walk: Walk, packages: modules.Packages, secrets: Mapping[str, str]) -> Iterator[Finding]:
    yield from objects.find_unpicklable(walk)
    yield from objects.find_by_name_only(walk)
    yield from objects.find_lost_handlers(walk)
    yield from objects.find_oversized(walk)
    environments = list(credentials.find_environment(walk))
    yield from (finding for _, finding in environments)
    known = frozenset(anchor for anchor, _ in environments)
    yield from credentials.find_secrets(walk, secrets, known)
    yield from paths.find_author_paths(walk, known)
    yield from paths.find_own_files(walk)
    yield from modules.find_modules(walk, packages)
    yield from modules.find_delayed_imports(walk, env_class, packages)
    yield from hints.find_unresolvable(walk)
    yield from state.find_shared_attributes(walk)
    yield from state.find_process_state(walk)
    if not walk.complete:
        yield Finding(
            severity="warning",
            code="not-all-examined",
            what=env_class.__qualname__,
            message="it holds more objects than are looked at, so there may be more to find",
            fix="Keep data in files of the dataset's folder.",
        )


def _in_bundle(
    env_class: type, walk: Walk, bundle: Bundle, findings: Sequence[Finding], secrets: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield what is in the bundle and was held by nothing that was looked at: comments, docstrings, what C holds."""
    known = {one.where for one in findings if one.code == "secret-captured"}
    first = next(walk.classes, None)
    file = first[0].anchor.file if first is not None else ""
    in_source = credentials.find_in_source(
        bundle.metadata.env_class_source or "",
        secrets,
        what=env_class.__qualname__,
        file=file,
        first_line=walk.places.of_class_source(file, env_class.__qualname__),
    )
    fresh = [one for one in in_source if not one.where or one.where not in known]
    yield from fresh
    if fresh or any(one.code in ("environment-captured", "secret-captured") for one in findings):
        return
    for name in credentials.find_in_pickle(bundle.pickled, secrets):
        yield credentials.unplaced(env_class.__qualname__, name)


def _explains(findings: Sequence[Finding], rule: Rule) -> bool:
    return any(one.severity == "error" and one.code in _EXPLAINED_BY.get(rule, ()) for one in findings)


def _refused(env_class: object, error: BundlingError) -> Finding:
    return Finding(
        severity="error",
        code="refused",
        what=getattr(env_class, "__qualname__", repr(env_class)),
        message=str(error).rstrip("."),
        fix="Change what it names.",
    )


def _report(
    name: str,
    findings: Sequence[Finding],
    bundle: Bundle | None,
    contributors: tuple[Contributor, ...],
    references: tuple[ByReference, ...],
    secrets: Mapping[str, str],
) -> Report:
    def clean(text: str) -> str:
        return credentials.without_values(text, secrets)

    return Report(
        environment=name,
        findings=in_order(
            [replace(one, what=clean(one.what), message=clean(one.message), fix=clean(one.fix)) for one in findings]
        ),
        by_value=tuple(Contributor(clean(one.name), one.size) for one in contributors),
        by_reference=references,
        cloudpickle_version=importlib.metadata.version("cloudpickle"),
        bundle=bundle,
    )


def _name(env_class: object) -> str:
    if not isinstance(env_class, type):
        return repr(env_class)
    return f"{env_class.__module__}.{env_class.__qualname__}"
