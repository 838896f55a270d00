"""First code of a worker: takes the descriptors into custody and loads the worker from its own folder.

Executed by path, as `python -s -P -X utf8 <folder>/worker/boot.py`. Nothing of the folder goes on `sys.path`, so
nothing in it can shadow, or be shadowed by, what a bundle imports.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path

# imports make much that stays and hardly any garbage: looking for it costs a tenth of the start
gc.disable()

PACKAGE = "_benchmax_runner"

# programs that a bundle starts must not inherit the channels
for _descriptor in (3, 4, 5, 6):
    os.set_inheritable(_descriptor, False)

_folder = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location(
    PACKAGE, _folder / "__init__.py", submodule_search_locations=[str(_folder)]
)
assert _spec is not None
assert _spec.loader is not None
_package = importlib.util.module_from_spec(_spec)
sys.modules[PACKAGE] = _package
_spec.loader.exec_module(_package)

importlib.import_module(f"{PACKAGE}.worker.serve").main()
