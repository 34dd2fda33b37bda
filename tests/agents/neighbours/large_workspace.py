"""Fills its workspace with what takes long to look at or to remove.

VARIANT: ``files`` (100,000), ``deep`` (directories in each other, past every limit of a path),
``names`` (each as long as a name may be), ``links`` (hard links and symbolic ones).
"""

import os
import time

from _wire import NEIGHBOURS, VARIANT, up

VARIANTS = ("files", "deep", "names", "links")
COUNT = 100_000 // NEIGHBOURS

if VARIANT == "files":
    for number in range(COUNT):
        if number % 1000 == 0:
            os.mkdir(f"d{number}")
        os.close(os.open(f"d{number // 1000 * 1000}/{number}", os.O_WRONLY | os.O_CREAT, 0o644))
elif VARIANT == "deep":
    for _ in range(3000 // NEIGHBOURS):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
elif VARIANT == "names":
    os.makedirs("names")
    for number in range(COUNT // 5):
        os.close(os.open(f"names/{number:0255}", os.O_WRONLY | os.O_CREAT, 0o644))
else:
    os.close(os.open("one", os.O_WRONLY | os.O_CREAT, 0o644))
    os.makedirs("links")
    for number in range(COUNT // 2):
        os.symlink("/", f"links/s{number}")
        try:
            os.link("one", f"links/h{number}")
        except OSError:
            continue
up()
time.sleep(1000)
