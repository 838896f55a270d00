"""Environments that break their side of the bargain; they are bundled, and never run in the tests' own process."""
