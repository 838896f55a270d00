"""Makes the virtual environment a bundle runs in, from its metadata alone, and keeps it for the next run."""

from runner.provision.bytecode import compile_modules as compile_modules
from runner.provision.cache import Cache as Cache
from runner.provision.lock import LOCK_NAME as LOCK_NAME
from runner.provision.lock import Lock as Lock
from runner.provision.lock import lock_beside as lock_beside
from runner.provision.locking import make_lock as make_lock
from runner.provision.options import ExtraIndex as ExtraIndex
from runner.provision.options import ProvisionOptions as ProvisionOptions
from runner.provision.progress import ProvisionEvent as ProvisionEvent
from runner.provision.provisioning import provision as provision
from runner.provision.provisioning import provision_packages as provision_packages
from runner.provision.venv import Venv as Venv

__all__ = [
    "LOCK_NAME",
    "Cache",
    "ExtraIndex",
    "Lock",
    "ProvisionEvent",
    "ProvisionOptions",
    "Venv",
    "compile_modules",
    "lock_beside",
    "make_lock",
    "provision",
    "provision_packages",
]
