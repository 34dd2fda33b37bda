"""Two processes: the root says hello, and a grandchild keeps the channel open for good.

Whoever takes the end of the channel for the end of a run waits for it in vain.
"""

import os

from membership import Tree, ignore_all, stay
from raw_channel import say

tree = Tree()
say({"type": "hello", "version": 1, "sdk": "channel_holder"})
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    ignore_all()
    tree.up("holder")
    stay()
tree.complete(1)
