# What benchmax and its tests use of Harbor, as it is in every release of the extra, so that types are checked where
# Harbor is not installed: it needs Python 3.12. tests/harbor/inside/test_stubs.py compares it with what is installed.
