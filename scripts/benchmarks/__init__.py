"""Benchmarks: ours and a reference, measured in turn in one run, told as medians and ratios."""
