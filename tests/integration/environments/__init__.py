"""Environments that tests bundle and run isolated."""
