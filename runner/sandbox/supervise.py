"""The supervisor as a program: `python -I -S supervise.py DESCRIPTOR`.

A file that is run by path is compiled at every start, modules are not: so there is next to nothing in this one.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.sandbox.supervisor import Supervisor
else:
    # its folder is the first place to look in, where it would shadow others: last instead
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes longer than all
    from supervisor import Supervisor

if __name__ == "__main__":
    # nothing is left to flush, and the caller waits for this process to be gone
    os._exit(Supervisor(int(sys.argv[1])).run())
