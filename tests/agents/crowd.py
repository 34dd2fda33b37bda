"""As many processes as the argument says, the root among them, all of them quiet."""

import os

from membership import Tree, arguments, stay

tree = Tree()
count = int(arguments()[0])
for _ in range(count - 1):
    if os.fork() == 0:
        tree.up("member")
        stay()
tree.complete(count - 1)
