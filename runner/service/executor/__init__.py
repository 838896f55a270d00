"""Executors: processes that take jobs from the database, run strangers' bundles, and write down what came of it."""

from runner.service.executor.confinement import Confinement, confinement
from runner.service.executor.process import execute
from runner.service.executor.supervising import Supervisor

__all__ = ["Confinement", "Supervisor", "confinement", "execute"]
