"""One process that never gives its interpreter away; its SIGTERM handler just returns.

With the argument ``native`` it is busy inside one C call, so that not even the handler
runs.  As a callable: ``gil_hog.py:hog``, with ``"native"`` or null as its input.
"""

import contextlib
import itertools
import os
import signal
import sys
from typing import NoReturn

# Run as a callable, this folder is not yet on the path of modules.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from membership import LEAVE_CODE, Tree, arguments


def hog(how: str | None = None) -> NoReturn:
    """Be busy until killed."""
    tree = Tree()
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    said = False
    while not said or how == "native":
        # Of the native one, a cancel between being up and being busy is not heard either.
        with contextlib.suppress(BaseException) if how == "native" else contextlib.nullcontext():
            if not said:
                said = True
                tree.up("root")
            if "--leave" in sys.argv:
                os._exit(LEAVE_CODE)
            if how == "native":
                sum(itertools.repeat(0))
    while True:
        pass


if __name__ == "__main__":
    hog(next(iter(arguments()), None))
