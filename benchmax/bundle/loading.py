"""From a bundle back to an environment. Loading runs the bundle's code: only in a process that may run it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from benchmax.bundle.compatibility import validate_bundle_compatibility
from benchmax.bundle.digest import Bundle
from benchmax.bundle.errors import BundlingError

if TYPE_CHECKING:
    from benchmax.envs.environment import Environment
    from benchmax.envs.shared_types import RolloutAttempt

    LoadedEnvironment: TypeAlias = Environment[object, RolloutAttempt]

logger = logging.getLogger("benchmax.bundle")


@overload
def load_bundle(bundle: Bundle, *, instantiate: Literal[True] = True) -> LoadedEnvironment: ...


@overload
def load_bundle(
    bundle: Bundle, *, instantiate: Literal[False]
) -> tuple[type[LoadedEnvironment], dict[str, object]]: ...


def load_bundle(
    bundle: Bundle, *, instantiate: bool = True
) -> LoadedEnvironment | tuple[type[LoadedEnvironment], dict[str, object]]:
    """Unpickle a bundle. Runs its code, installs nothing.

    Args:
        bundle: The bundle; its compatibility is checked before its pickle is touched.
        instantiate: Whether to call the class with its recorded arguments.

    Returns:
        The environment, or `(class, constructor arguments)` with `instantiate=False`.

    Raises:
        TypeError: not a `Bundle`.
        IncompatibleRuntimeError: made for another Python or benchmax series.
        BundlingError: the pickle cannot be loaded or holds something else.
        Exception: whatever the environment's constructor raises, unchanged.
    """
    if not isinstance(bundle, Bundle):
        raise TypeError(f"bundle must be Bundle, got {type(bundle).__name__}.")
    validate_bundle_compatibility(bundle.metadata)
    env_class, constructor_args = _check_payload(_unpickle(bundle.pickled))
    if not instantiate:
        return env_class, constructor_args
    logger.info("[bundle] instantiating %s.%s", env_class.__module__, env_class.__qualname__)
    return env_class(**constructor_args)


def _unpickle(pickled: bytes) -> object:
    import pickle

    try:
        payload: object = pickle.loads(pickled)  # noqa: S301 - loading a bundle is running it; callers choose where
    # a module of the bundle that calls sys.exit() must not end the process that loads it
    except (Exception, SystemExit) as error:
        remedy = "The pickle is corrupt or was cut short; bundle again."
        if isinstance(error, ImportError):
            remedy = (
                "Install what is missing: list its distribution in pip_dependencies, or pass the module in "
                "local_modules, and bundle again."
            )
        raise BundlingError(
            f"Cannot unpickle the bundle ({len(pickled)} bytes): {type(error).__name__}: {error}. {remedy}"
        ) from error
    return payload


def _check_payload(payload: object) -> tuple[type[LoadedEnvironment], dict[str, object]]:
    from benchmax.envs.environment import Environment

    expected = "A bundle's pickle must hold (environment class, constructor arguments)"
    if not isinstance(payload, tuple) or len(payload) != 2:
        size = f" of length {len(payload)}" if isinstance(payload, tuple) else ""
        raise BundlingError(f"{expected}, got {type(payload).__name__}{size}.")
    env_class, constructor_args = payload
    if not isinstance(env_class, type) or not issubclass(env_class, Environment):
        raise BundlingError(f"{expected}: the first item {env_class!r} is not an Environment class.")
    if not isinstance(constructor_args, dict):
        raise BundlingError(f"{expected}: the second item is {type(constructor_args).__name__}, not dict.")
    return env_class, constructor_args
