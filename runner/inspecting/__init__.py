"""Tells what is in a pickle, and what loading it would do, without executing anything of it."""

from runner.inspecting.facts import AuthorsFacts as AuthorsFacts
from runner.inspecting.facts import read_facts as read_facts
from runner.inspecting.overview import Overview as Overview
from runner.inspecting.overview import inspect_pickle as inspect_pickle
from runner.inspecting.witness import Finding as Finding

__all__ = ["AuthorsFacts", "Finding", "Overview", "inspect_pickle", "read_facts"]
