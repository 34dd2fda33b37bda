"""Swaps ``.git``, a directory, and a symlink to the path that it is given, as fast as it can.

It says ``flipping`` once it does, and ends by itself after the number of seconds given.
"""

import ctypes
import os
import sys
import time

AT_FDCWD = -100
RENAME_EXCHANGE = 2
libc = ctypes.CDLL(None, use_errno=True)

target, seconds = sys.argv[1:]
os.makedirs(".git/hooks")
with open(".git/config", "w") as config:
    config.write("[core]\n")
os.symlink(target, "link")
print("flipping", flush=True)
until = time.monotonic() + float(seconds)
while time.monotonic() < until:
    for _ in range(100):
        libc.renameat2(AT_FDCWD, b".git", AT_FDCWD, b"link", RENAME_EXCHANGE)
