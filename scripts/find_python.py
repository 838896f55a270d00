"""Print the path of an installed Python of a series; exit 1 with the reason when there is none."""

import asyncio
import sys

from runner.errors import InterpreterNotFoundError
from runner.provision import Cache
from runner.provision.interpreter import find_interpreter

try:
    found = asyncio.run(find_interpreter(sys.argv[1], python=None, cache=Cache()))
except InterpreterNotFoundError as error:
    sys.exit(str(error))
print(found.path)
