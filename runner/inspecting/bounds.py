"""How much of a pickle is looked at and kept. An honest bundle's classes stay far below; its data may be cut short."""

from __future__ import annotations

from typing import Final

from runner.limits import GIB, KIB, MIB

MAX_PICKLE_BYTES: Final = 2 * GIB
"""A pickle that is inspected; it is held in memory once."""

MAX_METADATA_BYTES: Final = 4 * MIB
"""Metadata that is inspected: a class's source and its requirements are a thousandth of it."""

MAX_FACTS_BYTES: Final = 16 * MIB
"""An author's further facts: the same, with a line for each thing that was packed."""

MAX_OPCODES: Final = 30_000_000
"""Instructions that are followed: some twenty seconds' worth."""

MAX_STACK: Final = 2_000_000
"""Values on the pickle's stack; only a tuple with more members needs more."""

MAX_MEMO: Final = 500_000
"""Values that a pickle may refer back to; later ones are not known when it does."""

MAX_NODES: Final = 500_000
"""Members of tuples, lists, dicts and calls that are kept; of what comes later only what is called is looked at."""

MAX_MEMBERS: Final = 1_000
"""Members kept of one list or dict; the rest is counted."""

OUTERMOST: Final = 16
"""Values on the stack up to which twice as many are kept: what holds all else is filled last."""

LATE_MEMBERS: Final = 8
"""Members kept of one tuple beyond the number of nodes: the arguments of a call."""

LATE_STACK: Final = 100_000
"""Values on the stack from which on even those are not kept."""

KEPT_BYTES: Final = 4 * KIB
"""A text or bytes that are kept whole; of longer ones the beginning."""

LONG_BYTES: Final = 256
"""A text that is longer than a name: all of them together may take `LONG_TEXTS_BYTES`."""

LONG_TEXTS_BYTES: Final = 16 * MIB
"""Texts longer than names that are kept, all together."""

HEAD_BYTES: Final = 80
"""The beginning that is kept of a text that is not kept whole."""

MAX_DISTINCT: Final = 5_000
"""Different imports, calls, or functions and classes by value, each; further ones are counted."""

MAX_FINDINGS: Final = 200
"""Different findings; an attack needs one, and nobody reads more."""

NESTED_DEPTH: Final = 3
"""Pickles inside each other that are looked into."""

NESTED_PICKLES: Final = 20
"""Pickles inside a pickle that are looked into, all together."""

SHOWN_DEPTH: Final = 3
"""Values inside each other that are described."""

SHOWN_MEMBERS: Final = 8
"""Members of one value that are described."""

SHOWN_CHARS: Final = 200
"""A described value, a signature, a name."""

SHOWN_DOC_CHARS: Final = 2_000
"""A docstring."""

MAX_NAMES: Final = 200
"""Names, or texts among its constants, that are kept of one function."""

MAX_CONTENTS: Final = 1_000
"""Functions and classes, each, that are described."""

CODE_DEPTH: Final = 10
"""Functions inside functions that are looked into for names."""
