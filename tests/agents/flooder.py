"""Two processes that write to stdout and stderr as fast as they can, and never a newline."""

import os
import sys

from membership import LEAVE_CODE, Tree, ignore_all

BLOCK = b"flood " * 11000

tree = Tree()
ignore_all()
child = os.fork()
if child == 0:
    tree.up("child")
else:
    tree.wait_for(1)
    tree.up("root")
descriptor = 2 if child == 0 else 1
for turn in range(1 << 60):
    if child and turn == 3 and "--leave" in sys.argv:
        os._exit(LEAVE_CODE)
    os.write(descriptor, BLOCK)
