"""Holds what takes the kernel long to give back when it is killed.

VARIANT: ``extents`` (an unlinked file of many pieces), ``memory`` (1 GiB), ``sparse`` (a file
of 2 TiB with a page here and there, mapped).
"""

import mmap
import os
import time

from _wire import NEIGHBOURS, VARIANT, up

VARIANTS = ("extents", "memory", "sparse")

if VARIANT == "extents":
    file = os.open("pieces", os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink("pieces")
    for number in range(100_000 // NEIGHBOURS):
        os.pwrite(file, b"x", number * 8192)
elif VARIANT == "memory":
    kept = bytearray((1 << 30) // NEIGHBOURS)
else:
    file = os.open("sparse", os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 1 << 40)
    area = mmap.mmap(file, 1 << 36)
    for place in range(0, 1 << 36, 1 << 24):
        area[place] = 1
up()
time.sleep(1000)
