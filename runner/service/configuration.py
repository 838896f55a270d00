"""Reading a service's settings from a file, variables and options; whatever is wrong with them is told at once.

Options win over variables, and these over the file. Comes in: text of whoever runs the service. Goes out: `Settings`.
Refuses: names that there are not, values that cannot be meant, keys that are not there.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from runner.errors import SettingsError, UsageError
from runner.service.settings import SECTIONS, BindingSettings, Settings

PREFIX: Final = "BENCHMAX_SERVE_"
FILE_VARIABLE: Final = f"{PREFIX}CONFIG"
BINDINGS_VARIABLE: Final = f"{PREFIX}BINDINGS"

_BOOLEANS: Final = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_ANYWHERE: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - it is what is looked for
_BLOB_SCHEMES: Final = ("file", "s3")


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that somebody wrote, and where."""

    value: object
    place: str
    base: Path = Path()
    """What relative paths are relative to."""


@dataclass(slots=True)
class _Reading:
    given: dict[tuple[str, str], _Given] = field(default_factory=dict)
    bindings: dict[str, dict[str, _Given]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def wrong(self, place: str, fact: str, fix: str = "") -> None:
        self.problems.append(f"{place}: {fact}.{f' {fix}' if fix else ''}")

    def unknown(self, place: str, name: str, known: list[str]) -> None:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        self.wrong(place, "there is no such setting", f"Did you mean {close[0]}?" if close else "Leave it out.")


def read_settings(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    options: Mapping[str, tuple[str, object]] | None = None,
) -> Settings:
    """Read settings.

    Args:
        file: A TOML file; else the one that `BENCHMAX_SERVE_CONFIG` names, if any.
        environ: Variables, of which those that begin with `BENCHMAX_SERVE_` are settings, and those that settings name
            hold keys.
        options: What a command line says, by `SECTION.FIELD`: the option's name and its value.

    Raises:
        SettingsError: something of it cannot be meant; it lists everything.
    """
    environ = environ or {}
    reading = _Reading()
    named = environ.get(FILE_VARIABLE, "")
    if file is None and named.strip():
        file = Path(named)
    if file is not None:
        _read_file(file.expanduser(), reading)
    _read_variables(environ, reading)
    for name, (option, value) in (options or {}).items():
        section, _, key = name.partition(".")
        reading.given[section, key] = _Given(value, option)
    settings = _settings(reading, environ)
    if found := reading.problems:
        many = f"{len(found)} settings are wrong: " if len(found) > 1 else ""
        raise SettingsError(f"{many}{'; '.join(text.rstrip('.') for text in found)}.", problems=found)
    return settings


def variable_of(section: str, name: str) -> str:
    """Return the variable that a setting can be given by."""
    return f"{PREFIX}{'' if section == 'server' else f'{section.upper()}_'}{name.upper()}"


def variables_of(settings: Settings) -> dict[str, str]:
    """Return the variables that give another process the same settings; keys are not among them, but their names."""
    found: dict[str, str] = {}
    for section, kind in SECTIONS.items():
        part, plain = getattr(settings, section), kind()
        for name in _names(kind):
            value = getattr(part, name)
            if value != getattr(plain, name):
                found[variable_of(section, name)] = _spelled(value)
    if settings.bindings:
        tables = {
            name: {key: getattr(binding, key) for key in _names(BindingSettings)}
            for name, binding in settings.bindings.items()
        }
        found[BINDINGS_VARIABLE] = json.dumps(tables)
    return found


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _names(kind: type) -> list[str]:
    """The settings of a section; a field that follows from another one is none."""
    return [item.name for item in dataclasses.fields(kind) if "from" not in item.metadata]


# -- where they come from -------------------------------------------------------------------------------------


def _read_file(path: Path, reading: _Reading) -> None:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        reading.wrong(str(path), f"cannot be read: {error.strerror}", "Check the path.")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reading.wrong(str(path), f"is not TOML: {error}")
        return
    base = path.absolute().parent
    for section, table in tables.items():
        place = f"{path}, [{section}]"
        if section != "bindings" and section not in SECTIONS:
            reading.unknown(place, section, [*SECTIONS, "bindings"])
        elif not isinstance(table, dict):
            reading.wrong(place, "must be a table", f"Begin it with [{section}].")
        elif section == "bindings":
            _read_bindings(table, place[:-1], "]", base, reading)
        else:
            known = _names(SECTIONS[section])
            for name, value in table.items():
                if name in known:
                    reading.given[section, name] = _Given(value, f"{place} {name}", base)
                else:
                    reading.unknown(f"{place} {name}", name, known)


def _read_bindings(tables: Mapping[str, object], place: str, end: str, base: Path, reading: _Reading) -> None:
    known = _names(BindingSettings)
    for binding, table in tables.items():
        where = f"{place}.{binding}{end}"
        if not isinstance(table, dict):
            reading.wrong(where, "must be a table", "It has base_url, api_key_env and models.")
            continue
        found = reading.bindings[binding] = {}
        for name, value in table.items():
            if name in known:
                found[name] = _Given(value, f"{where} {name}", base)
            else:
                reading.unknown(f"{where} {name}", name, known)


def _read_variables(environ: Mapping[str, str], reading: _Reading) -> None:
    known = {variable_of(section, name): (section, name) for section, kind in SECTIONS.items() for name in _names(kind)}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or not text.strip():
            # an empty one is how whoever writes a unit or a container says that there is none
            continue
        if variable == BINDINGS_VARIABLE:
            try:
                tables = json.loads(text)
            except (ValueError, RecursionError):
                tables = None
            if isinstance(tables, dict):
                _read_bindings(tables, variable, "", Path(), reading)
            else:
                reading.wrong(
                    variable, "is not a JSON object", 'It looks like {"judge": {"base_url": "https://…/v1"}}.'
                )
        elif variable in known:
            section, name = known[variable]
            reading.given[section, name] = _Given(_parsed(text.strip(), _type(SECTIONS[section], name)), variable)
        else:
            reading.unknown(variable, variable, [*known, BINDINGS_VARIABLE, FILE_VARIABLE])


def _parsed(text: str, kind: str) -> object:
    """Turn a variable's text into what a file would have; what cannot be turned is left, and refused as such."""
    if kind == "bool":
        return _BOOLEANS.get(text.lower(), text)
    if kind.startswith("tuple"):
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind in ("int", "float"):
        for convert in (int, float):
            try:
                return convert(text)
            except ValueError:
                continue
    return text


def _type(kind: type, name: str) -> str:
    return str(next(item.type for item in dataclasses.fields(kind) if item.name == name))


# -- what they mean -------------------------------------------------------------------------------------------


def _settings(reading: _Reading, environ: Mapping[str, str]) -> Settings:
    parts: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        given = {name: found for (part, name), found in reading.given.items() if part == section}
        parts[section] = _part(kind, given, f"[{section}]", reading, environ)
    bindings = {
        name: _part(BindingSettings, given, f"[bindings.{name}]", reading, environ)
        for name, given in reading.bindings.items()
    }
    if parts["server"].data == Path():
        parts["server"] = dataclasses.replace(parts["server"], data=_users_folder())
    settings = Settings(**parts, bindings=MappingProxyType(bindings))
    _check_whole(settings, reading)
    return settings


def _users_folder() -> Path:
    import platformdirs

    return platformdirs.user_data_path("benchmax") / "service"


def _part(kind: type, given: Mapping[str, _Given], table: str, reading: _Reading, environ: Mapping[str, str]) -> Any:
    values: dict[str, object] = {}
    for item in dataclasses.fields(kind):
        if item.name in given:
            found = given[item.name]
            complaint, value = _checked(item, found)
            if complaint:
                reading.wrong(found.place, complaint)
            else:
                values[item.name] = value
    for item in dataclasses.fields(kind):
        source = item.metadata.get("from")
        if source is not None and (variable := values.get(source)):
            values[item.name] = _key(str(variable), given[source].place, reading, environ)
    if kind is BindingSettings and "base_url" not in given:
        reading.wrong(f"{table} base_url", "is missing", "Say which server it leads to, such as https://host/v1.")
    return kind(**values)


def _checked(item: dataclasses.Field[Any], given: _Given) -> tuple[str, object]:
    """Return what is wrong with a value, or how it is used."""
    value, kind = given.value, str(item.type)
    got = f", got {value!r}" if item.repr else ""
    if kind == "bool":
        return ("", value) if isinstance(value, bool) else (f"must be true or false{got}", None)
    if kind in ("int", "float"):
        fits = isinstance(value, int if kind == "int" else (int, float)) and not isinstance(value, bool)
        if not fits or not _within(value, item):
            whole = "a whole number" if kind == "int" else "a number"
            least, most = item.metadata["least"], item.metadata["most"]
            scope = f"of at least {least}" if most is None else f"from {least} to {most}"
            return f"must be {whole} {scope}{got}", None
        return "", value
    if kind.startswith("tuple"):
        fits = isinstance(value, list) and all(isinstance(part, str) and part.strip() for part in value)
        return ("", tuple(value)) if fits and isinstance(value, list) else (f"must be a list of texts{got}", None)
    if kind == "Path":
        if not isinstance(value, (str, Path)) or not str(value).strip():
            return f"must be a path{got}", None
        return "", (given.base / Path(value).expanduser()).absolute()
    if not isinstance(value, str) or "\0" in value or "\n" in value:
        return f"must be a text of one line{got}", None
    return "", value.strip()


def _within(value: Any, item: dataclasses.Field[Any]) -> bool:
    least, most = item.metadata["least"], item.metadata["most"]
    return math.isfinite(value) and value >= least and (most is None or value <= most)


def _key(variable: str, place: str, reading: _Reading, environ: Mapping[str, str]) -> str:
    """Read a key from the variable that a setting names; no text ever holds its value."""
    if not re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII):
        reading.wrong(place, "must be the name of a variable", "Put the key itself into that variable.")
        return ""
    value = environ.get(variable, "")
    if not value.strip():
        reading.wrong(place, f"the environment variable {variable} is not set", "Export it first.")
    elif not (value.isascii() and value.isprintable()):
        reading.wrong(
            place,
            f"the environment variable {variable} holds characters that no header can carry",
            "It may end in a line break.",
        )
    return value


def _check_whole(settings: Settings, reading: _Reading) -> None:
    """Look at what only makes sense together, and at what other parts of the project can tell."""
    for section, name, complaint, fix in _complaints(settings):
        found = reading.given.get((section, name))
        reading.wrong(found.place if found is not None else f"[{section}] {name}", complaint, fix)
    for binding, part in settings.bindings.items():
        if part.base_url and _web(part.base_url) is None:
            given = reading.bindings[binding]["base_url"]
            reading.wrong(given.place, "is not the base URL of a server", "It looks like https://host/v1.")


def _complaints(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    server, model = settings.server, settings.model
    if server.public_url:
        url = _web(server.public_url)
        if url is None or url.path.strip("/") or url.query or url.fragment:
            yield "server", "public_url", "is not an http or https URL without a path", "It looks like https://host."
    elif server.host in _ANYWHERE:
        yield "server", "public_url", f"is missing, and {server.host!r} is no address for clients", "Say theirs."
    database = settings.database.url
    if database and not re.match(r"sqlite:///.|postgresql(\+psycopg)?://.", database):
        yield (
            "database",
            "url",
            "is not the URL of a database",
            "It looks like sqlite:///FILE or postgresql://HOST/NAME.",
        )
    blobs = settings.blobs.url
    if blobs and "://" in blobs and urlsplit(blobs).scheme not in _BLOB_SCHEMES:
        yield "blobs", "url", "is not the URL of a blob store", "It looks like file:///FOLDER or s3://BUCKET/PREFIX."
    if model.base_url and _web(model.base_url) is None:
        yield "model", "base_url", "is not the base URL of a server", "It looks like https://host/v1."
    elif model.api_key_env and not model.base_url:
        yield "model", "api_key_env", "has no use without base_url", "The mock and local models want no key."
    else:
        try:
            model.choice()
        except UsageError as error:
            yield "model", "name", error.message.rstrip("."), error.hint.replace("--base-url URL", "base_url")


def _web(text: str) -> Any:
    """Return an http or https URL's parts; `None` for anything else, also for one that holds a password."""
    try:
        url = urlsplit(text)
        port_is_one = url.port is None or url.port > 0
    except ValueError:
        return None
    return url if url.scheme in ("http", "https") and url.hostname and port_is_one and "@" not in url.netloc else None
