"""`isolate`: checks what a caller asks for, and gives a bundle's environment, isolated.

What works with `benchmax.bundle.load_bundle(bundle)` works with `isolate(bundle)`; only the process, the packages
and the trust differ. Nothing is started here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from benchmax.bundle import Bundle
from runner.artifact import Artifact
from runner.broker import AuthValue
from runner.environ import HASH_SEED
from runner.errors import UsageError
from runner.gateway.exchange import Exchange
from runner.isolated import IsolatedEnvironment
from runner.limits import Limits
from runner.provision import ProvisionOptions, lock_beside
from runner.provision.cache import Cache
from runner.reach import read_reach
from runner.record import OnEvent
from runner.sandbox.levels import AUTO, choose_policy
from runner.sandbox.policy import CREDENTIALS, NETWORKS, Credentials, choose
from runner.variables import SecretVariables


def isolate(
    bundle: Bundle | Artifact | Path | str,
    *,
    auth: Mapping[str, AuthValue] | None = None,
    sandbox: str = "auto",
    network: str = "open",
    endpoints: Iterable[str] = (),
    allow: Iterable[str] = (),
    secrets: Mapping[str, str] | None = None,
    credentials: str | None = None,
    exchange: Exchange | None = None,
    workers: int = 1,
    data: Path | None = None,
    limits: Limits | None = None,
    python: str | None = None,
    lock: Path | None = None,
    provisioning: ProvisionOptions | None = None,
    cache: Cache | None = None,
    on_event: OnEvent | None = None,
    hash_seed: int = int(HASH_SEED),
) -> IsolatedEnvironment:
    """Give a bundle's environment, isolated: its code runs in a venv and a process of its own.

    Args:
        bundle: A bundle, or the folder of an artifact.
        auth: What `InjectedAuth` names in the bundle resolve to: a `ModelAuth`, or a `Binding` that also says for
            which URLs. An active `bind_model_auth` replaces it whole.
        sandbox: `auto` (the strongest level there is) or a level.
        network: Network mode: `open` shares the host's; with `model-only` a worker can connect to `endpoints`, to the
            URLs of the bindings in `auth` and to `allow`, and with `none` to nothing. Both need the level `namespaces`.
        endpoints: At `model-only`, base URLs of the models that requests will name. With the gateway they need not be
            named beforehand: it is what connects to them. If some are, requests are held to them all the same.
        allow: At `model-only`, further places, each as `HOST:PORT`.
        secrets: Variables for the workers' environment. Their values are taken out of everything that comes back.
        credentials: `headers`: the worker gets headers per request, never the credential source. `gateway`: it gets
            none at all, only session keys for a gateway in this process, which puts the headers in. `None` is `gateway`
            at `model-only` and `headers` elsewhere.
        exchange: Who answers model requests in the place of their servers, and is told of each; needs the gateway.
        workers: Processes to spread groups over.
        data: The folder that `create_dataset` is going to be given. Said beforehand, a worker at the level `namespaces`
            has it as an overlay where that works; otherwise folders are copied there.
        limits: What the bundle may use.
        python: An interpreter of the bundle's series, by path; found by itself when `None`.
        lock: A lock to install from. `None` takes the artifact's own `pylock.toml`, if it has one.
        provisioning: How the venv's packages are looked for and chosen, such as the package index.
        cache: Where venvs are kept; the user's cache folder when `None`.
        on_event: Called with each event (phases, records, output), on the event loop.
        hash_seed: What hashes of texts in workers, and so the order of sets, depend on: 0 to 4294967295.

    Raises:
        UsageError: the folder or a file of the artifact is missing, or an option's value is unknown or not built.
        ArtifactError: the artifact's metadata is broken.
        SandboxUnavailableError: the level or network that was asked for does not work here.
        TypeError, ValueError: an entry of `auth` is not valid.
    """
    if type(workers) is not int or workers < 1:
        raise UsageError(f"workers must be a positive integer, got {workers!r}.")
    if type(hash_seed) is not int or not 0 <= hash_seed < 1 << 32:
        raise UsageError(f"hash_seed must be an integer from 0 to 4294967295, got {hash_seed!r}.")
    choose("network", network, known=NETWORKS, built=NETWORKS)
    mode = _credentials(credentials, network, exchange)
    reach = read_reach(network, credentials=mode, endpoints=endpoints, allow=allow, auth=auth)
    artifact = Artifact.of(bundle)
    limits = limits or Limits()
    options = provisioning or ProvisionOptions()
    options = options if lock is None else replace(options, lock=Path(lock))
    # what installs is confined as what runs, unless it is said otherwise
    options = replace(options, sandbox=sandbox) if options.sandbox == AUTO else options
    return IsolatedEnvironment(
        artifact,
        auth=auth,
        policy=choose_policy(sandbox, network, endpoints=reach.endpoints, limits=limits),
        reach=reach,
        secrets=SecretVariables(secrets),
        credentials=mode,
        exchange=exchange,
        workers=workers,
        data=data,
        limits=limits,
        python=python,
        cache=cache or Cache(),
        provisioning=lock_beside(options, artifact.path),
        on_event=on_event,
        hash_seed=str(hash_seed),
    )


def _credentials(mode: str | None, network: str, exchange: Exchange | None) -> Credentials:
    """Choose a mode of credentials.

    Raises:
        UsageError: it is unknown, or an exchange is to see what does not pass the gateway.
    """
    if mode is None:
        mode = "gateway" if network == "model-only" else "headers"
    choose("credentials", mode, known=CREDENTIALS, built=CREDENTIALS)
    if mode == "gateway":
        return "gateway"
    if exchange is not None:
        raise UsageError(
            "exchange has no meaning with credentials headers: workers talk to models themselves.",
            hint="Use credentials='gateway'.",
        )
    return "headers"
