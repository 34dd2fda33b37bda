"""Says hello and ready, then exits with 7 in the middle of a frame."""

import os

from membership import LEAVE_CODE, Tree
from raw_channel import frame, pack, say, send

tree = Tree()
say({"type": "hello", "version": 1})
say({"type": "ready"})
whole = frame(pack({"type": "events", "first": 1, "events": [{"type": "text", "text": "lost"}]}))
send(whole[: len(whole) // 2])
tree.up("root")
os._exit(LEAVE_CODE)
