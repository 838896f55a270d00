"""Sandboxes for trials: places of their own in which the commands of one rollout's task run, for as long as it does.

Comes in: what a trial needs. Goes out: one end of a stream, at the other end of which a program takes requests. Each
sandbox is a process tree of the caller's own, beside the worker that asks and never inside it, and has nothing in
common with that worker or with another sandbox. Refuses: more than the limits leave, and a network that the worker
itself does not have.
"""
