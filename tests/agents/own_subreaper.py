"""Four processes, one of them a subreaper: the daemons that it makes come back to it.

``root``, ``reaper`` (PR_SET_CHILD_SUBREAPER, ignores every signal), and two daemons
made by double forks whose parent is then the reaper and not their supervisor's.
"""

import ctypes
import os

from membership import Tree, ignore_all, stay

PR_SET_CHILD_SUBREAPER = 36

tree = Tree()
if os.fork() == 0:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ignore_all()
    for role in ("first_daemon", "second_daemon"):
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            tree.up(role)
            stay()
    tree.up("reaper")
    stay()
tree.complete(3)
