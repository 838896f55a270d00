#!/bin/bash
cat > /app/summary.py <<'PYTHON'
"""Figures that sum up a list of numbers."""


def median(values):
    """Return the number in the middle, or the mean of the two in the middle; of no numbers, None."""
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(values):
    """Return the difference between the largest and the smallest number; of no numbers, 0."""
    return max(values) - min(values) if values else 0


def most_common(values):
    """Return the number that occurs most often, the smallest of several; of no numbers, None."""
    return min(values, key=lambda value: (-values.count(value), value)) if values else None
PYTHON
