"""Two processes: a grandchild in its own session keeps stdout and stderr open.

Whoever takes the end of a pipe for the end of a run waits for it in vain.
"""

import os

from membership import Tree, ignore_all, stay

tree = Tree()
os.write(1, b"the root has spoken\n")
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    ignore_all()
    tree.up("holder")
    stay()
tree.complete(1)
