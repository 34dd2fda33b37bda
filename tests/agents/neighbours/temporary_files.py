"""Fills every memory file system that it sees, to the last page and the last inode."""

import itertools
import os
import time

from _wire import up

for place in ("/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~")):
    try:
        with open(f"{place}/full", "wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
    except OSError:
        pass
    try:
        for number in itertools.count():
            os.close(os.open(f"{place}/{number}", os.O_WRONLY | os.O_CREAT, 0o600))
            if number == 50_000:
                break
    except OSError:
        pass
up()
time.sleep(1000)
