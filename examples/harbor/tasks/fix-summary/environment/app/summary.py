"""Figures that sum up a list of numbers."""


def median(values):
    """Return the number in the middle, or the mean of the two in the middle; of no numbers, None."""
    return values[len(values) // 2]


def spread(values):
    """Return the difference between the largest and the smallest number; of no numbers, 0."""
    return values[-1] - values[0]


def most_common(values):
    """Return the number that occurs most often, the smallest of several; of no numbers, None."""
    return max(values, key=values.count)
