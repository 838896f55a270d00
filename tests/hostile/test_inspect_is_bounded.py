"""Pickles made to take memory or time beyond their size: they are followed in a bounded part of both, or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MEMORY = 500 * 1024 * 1024
"""Addresses that a process may have: an interpreter with our modules takes a fifth of it."""

SHAPES = {
    "lists inside each other": ("b']' * 300_000 + b'a' * 299_999", ""),
    "tuples inside each other": ("b')' + b'\\x85' * 600_000", ""),
    "tuples of numbers": ("b'(' + b'(K\\x01K\\x02t' * 150_000 + b't'", ""),
    "dicts inside each other": ("b'}' + b'K\\x01}' * 150_000 + b's' * 150_000", ""),
    "calls inside each other": ("b'cm\\nf\\n' + b')R' * 100_000", ""),
    "states inside each other": ("b'cm\\nf\\n)R' + b'2b' * 100_000", ""),
    "a list that holds itself": ("b']\\x94' + b'h\\x00a' * 200_000", ""),
    "names without end": ("b''.join(b'cm%d\\nn\\n0' % i for i in range(40_000)) + b'N'", ""),
    "calls without end": ("b''.join(b'cm\\nn%d\\n)R0' % i for i in range(20_000)) + b'N'", ""),
    "dangers without end": (
        "b''.join(b'cos\\nsystem%d\\n0cos.system\\nn%d\\n)R0' % (i, i) for i in range(8_000)) + b'N'",
        "",
    ),
    "texts referred back to": ("b'\\x8c\\x05abcde\\x940' * 520_000 + b'N'", ""),
    "a far number to refer back to": ("b'Nr\\xff\\xff\\xff\\xff'", ""),
    "marks without end": ("b'(' * 300_000 + b'1' * 300_000 + b'N'", ""),
    "values without end": ("b'N' * 2_500_000", "values at once"),
    "a text of a billion bytes": ("b'X\\xff\\xff\\xff\\x3f'", "cut short"),
    "a number of a billion bytes": ("b'\\x8b\\xff\\xff\\xff\\x3f'", "cut short"),
    "a number of a million digits": ("b'L' + b'9' * 1_000_000 + b'L\\n'", ""),
    "bytes of a terabyte": ("b'\\x8e\\0\\0\\0\\0\\0\\x01\\0\\0'", "cut short"),
    "pickles inside each other": ("nested(200)", ""),
    "many pickles inside": ("b'(' + b'C\\x04\\x80\\x04N.' * 100_000 + b't'", ""),
}

RUN = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
from runner.inspecting import inspect_pickle

def nested(depth):
    inner = b'N'
    for _ in range(depth):
        whole = b'\\x80\\x04' + inner + b'.'
        inner = b'B' + len(whole).to_bytes(4, 'little') + whole
    return inner

overview = inspect_pickle(b'\\x80\\x04' + {shape} + b'.')
print(json.dumps(overview.as_json())[:1_000_000_000].count('{{'), overview.broken, overview.unfinished)
"""


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_followed_in_little_memory(shape: str) -> None:
    code, says = SHAPES[shape]
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(memory=MEMORY, shape=code)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert says in done.stdout
    assert says or not done.stdout.split(maxsplit=1)[1:], done.stdout
