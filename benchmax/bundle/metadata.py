"""What a bundle says about itself in plain JSON.

Everything a runtime has to know before it touches the pickle: which Python and benchmax made it, what to install,
and the source text a person may want to read. Nothing here can run code of the bundle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from benchmax.bundle.dependencies import normalize_dependencies


@dataclass(frozen=True)
class BundleMetadata:
    """The readable half of a bundle.

    Not slotted on purpose: its pickled state is a dict, which other releases read.

    Args:
        pip_dependencies: PEP 508 requirements to install before loading; normalised on construction.
        python_version: Python series that made the pickle, as `major.minor`.
        benchmax_version: benchmax version that made the pickle.
        env_class_source: Source text of the environment class, `None` when it could not be had.

    Raises:
        TypeError: `pip_dependencies` is not a sequence of strings, or the source is neither text nor `None`.
        ValueError: a requirement is invalid or declared twice, a version is blank, or a text is not valid Unicode.
    """

    pip_dependencies: tuple[str, ...]
    python_version: str
    benchmax_version: str
    env_class_source: str | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pip_dependencies", normalize_dependencies(self.pip_dependencies))
        for name, version in (
            ("python_version", self.python_version),
            ("benchmax_version", self.benchmax_version),
        ):
            _check_version(name, version)
        _check_source(self.env_class_source)
        for dependency in self.pip_dependencies:
            _check_encodable("pip_dependencies", dependency)

    def to_json_bytes(self) -> bytes:
        """Return the canonical JSON: the four fields, keys sorted, no spaces, UTF-8, nothing escaped needlessly."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8")

    @classmethod
    def from_json_bytes(cls, data: bytes) -> BundleMetadata:
        """Read metadata back; the inverse of `to_json_bytes`.

        Raises:
            ValueError: not bytes, not UTF-8, not a JSON object, an unknown or missing key, or an invalid value.
            TypeError: a value has the wrong type.
        """
        content = _parse_object(data)
        known = [field.name for field in fields(cls)]
        unsupported = sorted(set(content) - set(known))
        if unsupported:
            raise ValueError(
                f"Bundle metadata has unsupported keys {unsupported}. It was written by another release: "
                "re-bundle the environment with this one."
            )
        for name in known:
            if name != "env_class_source" and name not in content:
                raise ValueError(f"Bundle metadata lacks {name!r}. Re-bundle the environment.")
        # the constructor checks the types, it does not trust them
        return cls(
            pip_dependencies=content["pip_dependencies"],  # type: ignore[arg-type]
            python_version=content["python_version"],  # type: ignore[arg-type]
            benchmax_version=content["benchmax_version"],  # type: ignore[arg-type]
            env_class_source=content.get("env_class_source"),  # type: ignore[arg-type]
        )


def _parse_object(data: object) -> dict[str, object]:
    if not isinstance(data, bytes):
        raise ValueError(f"Bundle metadata must be bytes of UTF-8 JSON, got {type(data).__name__}.")
    try:
        content: object = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"Bundle metadata is not UTF-8: {error}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"Bundle metadata is not JSON: {error}.") from error
    except RecursionError as error:
        raise ValueError("Bundle metadata is not usable JSON: it is nested too deeply.") from error
    if not isinstance(content, dict):
        raise ValueError(f"Bundle metadata must be a JSON object, got {type(content).__name__}.")
    return content


def _check_version(name: str, version: object) -> None:
    if not isinstance(version, str) or not version.strip():
        raise ValueError(f"{name} must be a non-blank string, got {version!r}.")
    _check_encodable(name, version)


def _check_source(source: object) -> None:
    if source is None:
        return
    if not isinstance(source, str):
        raise TypeError(f"env_class_source must be a string or None, got {type(source).__name__}.")
    _check_encodable("env_class_source", source)


def _check_encodable(name: str, text: str) -> None:
    # otherwise the error would come from to_json_bytes, far from whoever put the text in
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is not valid Unicode text: {error}.") from error
