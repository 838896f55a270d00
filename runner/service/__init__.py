"""The validation service: HTTP, a queue and executors around the same calls that the command line makes."""
