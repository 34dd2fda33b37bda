"""Says hello, then one thing that the channel does not allow; the argument says which.

It then waits for its end.
"""

from membership import Tree, arguments
from raw_channel import frame, pack, send

HELLO = frame(pack({"type": "hello", "version": 1}))
READY = frame(pack({"type": "ready"}))

LIES = {
    "huge": HELLO + b"\xff\xff\xff\xff" + b"x" * 1000,
    "zero": HELLO + b"\0\0\0\0",
    "garbage": HELLO + frame(b"\xc1 no msgpack begins with this byte"),
    "version": frame(pack({"type": "hello", "version": 999})),
    "tag": HELLO + frame(pack({"type": "take_over"})),
    "supervisors_word": HELLO + READY + frame(pack({"type": "verdict", "call": "1"})),
    # 100,000 arrays inside each other; then lengths that would cost gigabytes if believed.
    "nested": HELLO + READY + frame(b"\x82\xa4type\xa6result\xa5value" + b"\x91" * 100_000),
    "long_array": HELLO + frame(b"\xdd\xff\xff\xff\xff"),
    "long_map": HELLO + frame(b"\xdf\xff\xff\xff\xff"),
    "long_string": HELLO + frame(b"\x81\xa4type\xdb\xff\xff\xff\xff"),
    "bad_utf8": HELLO + frame(b"\x82\xa4type\xa5error\xa4kind\xa2\xff\xfe"),
    "mistyped": HELLO + frame(pack({"type": "beat", "thread": "often"})),
    "no_hello": READY,
    "gap": HELLO
    + READY
    + frame(pack({"type": "events", "first": 5, "events": [{"type": "text", "text": "5"}]})),
    "hello_twice": HELLO + HELLO,
}

if __name__ == "__main__":
    tree = Tree()
    send(LIES[arguments()[0]])
    tree.complete(0)
