"""A process that is never where one looks: it forks, its parent exits, again and again.

Two processes: the root, which stays, and the comet, which ignores every signal and
is in a new session under a new pid some thousand times a second.
"""

import os

from membership import Tree, ignore_all, seconds_left

tree = Tree()
if os.fork() == 0:
    ignore_all()
    if os.fork():
        os._exit(0)
    os.setsid()
    tree.up("comet")
    while seconds_left() > 0:
        if os.fork():
            os._exit(0)
        os.setsid()
    os._exit(0)
os.wait()
tree.complete(1)
