"""Sandbox levels: the policy, what it compiles to, and the supervisor that owns a process tree."""
