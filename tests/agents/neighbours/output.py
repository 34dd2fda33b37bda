"""Output without end.

VARIANT: ``large`` (64 KiB a write), ``lines``, ``bytes`` (one a write, a record of the log each),
``both`` (stdout and stderr in turn, a byte each).
"""

import os
import time

from _wire import VARIANT, up

VARIANTS = ("large", "lines", "bytes", "both")
SPEC = {"output_bytes": None}
DATA = {"large": b"x" * 65_536, "lines": b"x\n" * 2000}.get(VARIANT, b"x")

up()
time.sleep(0.5)  # only the end of the output is kept, and that line is to be seen in it
while True:
    os.write(1, DATA)
    if VARIANT == "both":
        os.write(2, DATA)
