"""Says hello and ready, sends one event and half of the next frame, and then nothing more."""

from membership import Tree
from raw_channel import frame, pack, say, send

tree = Tree()
say({"type": "hello", "version": 1})
say({"type": "ready"})
say({"type": "events", "first": 1, "events": [{"type": "text", "text": "kept"}]})
whole = frame(pack({"type": "events", "first": 2, "events": [{"type": "text", "text": "torn"}]}))
send(whole[: len(whole) // 2])
tree.complete(0)
