"""First code of a worker: takes the descriptors into custody and loads the worker from its own folder.

Executed by path, as `python -s -P -X utf8 <folder>/worker/boot.py <prefix>`. Nothing of the folder goes on `sys.path`,
so nothing in it can shadow, or be shadowed by, what a bundle imports.

An interpreter that cannot reach all of itself takes the standard library of another one without a word. So where it
found its own is compared with the prefix that it had when its venv was made, before anything else is loaded.
"""

import gc
import importlib.util
import os
import sys
from pathlib import Path

# imports make much that stays and hardly any garbage: looking for it costs a tenth of the start
gc.disable()

PACKAGE = "_benchmax_runner"

EXIT_OTHER_LIBRARY = 78

# not for the bundle, which may look at them
_expected = os.path.realpath(sys.argv.pop(1))
_prefix, _library = os.path.realpath(sys.base_prefix), os.path.realpath(os.__file__)
if _prefix != _expected or not _library.startswith(f"{_expected.rstrip('/')}/"):
    sys.stderr.write(
        f"the interpreter is not whole: its prefix is {_prefix} and its standard library {_library}, "
        f"but the venv was made of {_expected}\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_OTHER_LIBRARY)

# programs that a bundle starts must not inherit the channels
for _descriptor in (3, 4, 5, 6, 7):
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
