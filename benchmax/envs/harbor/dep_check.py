"""Whether Harbor, which is optional, is there."""

from __future__ import annotations

__all__ = ["require_harbor"]


def require_harbor() -> None:
    """Import Harbor.

    Raises:
        ImportError: Harbor is not installed. What is missing inside of Harbor is raised as it is.
    """
    try:
        import harbor  # noqa: F401 - whether it can be imported is the question
    except ModuleNotFoundError as error:
        if error.name != "harbor":
            raise
        raise ImportError(
            "benchmax.envs.harbor needs Harbor, which is not installed. "
            "Install benchmax[harbor] on Python 3.12 or newer.",
            name="harbor",
        ) from error
