"""Processes that are born and die as fast as can be, or thousands that only are there.

VARIANT: ``births``, ``zombies`` (dead, and never reaped), ``crowd`` (asleep).
"""

import os
import time

from _wire import NEIGHBOURS, VARIANT, up

KIND = "cpu"
VARIANTS = ("births", "zombies", "crowd")

if VARIANT == "births":
    up()
    while True:
        try:
            if os.fork() == 0:
                os._exit(0)
            os.waitpid(-1, 0)
        except OSError:
            time.sleep(0.01)
for _ in range(4000 // NEIGHBOURS):
    try:
        if os.fork() == 0:
            if VARIANT == "zombies":
                os._exit(0)
            time.sleep(1000)
    except OSError:
        break
up()
time.sleep(1000)
