"""``examples/runaway.py``, saying that its five processes are up."""

import os
import sys

from membership import Tree, seconds_left

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from examples import runaway

tree = Tree()
runaway.main(tree.up, seconds_left())
tree.complete(runaway.MEMBERS - 1)
