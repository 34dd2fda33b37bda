"""A fork bomb where the whole pid table is small: no process and no thread more for anybody.

The supervisor is in a pid namespace with a small kernel.pid_max of its own (Linux 6.14).
"""

import os
import time

from _wire import up

KIND = "cpu"
NEEDS = "root"
PID_MAX = 1200

told = False
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        if not told:
            up()
            told = True
        time.sleep(0.01)
