"""Makes the virtual environment a bundle runs in, from its metadata alone, and keeps it for the next run."""

from runner.provision.bytecode import compile_modules as compile_modules
from runner.provision.cache import Cache as Cache
from runner.provision.progress import ProvisionEvent as ProvisionEvent
from runner.provision.provisioning import provision as provision
from runner.provision.provisioning import provision_packages as provision_packages
from runner.provision.venv import Venv as Venv

__all__ = ["Cache", "ProvisionEvent", "Venv", "compile_modules", "provision", "provision_packages"]
