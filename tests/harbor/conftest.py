"""What is in `inside` runs where Harbor is installed: `test_releases.py` sees to that."""

collect_ignore = ["inside"]
