"""Frames that never end, or that come byte by byte, so that each byte is a turn of the loop.

VARIANT: ``held`` (a frame of 1 MiB lacks its last byte), ``bytes`` (a beat, a byte a write).
"""

import time

from _wire import FRAME, VARIANT, frame, hello, pack, up, write

VARIANTS = ("held", "bytes")

hello()
up()
if VARIANT == "held":
    write(frame(b"x" * FRAME)[:-1])
    time.sleep(1000)
while True:
    for byte in frame(pack({"type": "beat"})):
        write(bytes([byte]))
