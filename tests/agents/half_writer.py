r"""Leaves work half done, in its working directory: files open for writing, and some decoys.

Open for writing: ``half``, ``two\nlines``; through a child only: ``childs``.  Not half done:
``read`` is open for reading, ``gone`` is deleted, ``pipe`` is a FIFO, which is
made if it is not there.  Then it sleeps, ignoring SIGTERM.
"""

import os
import signal
import subprocess
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
held: list[object] = []
for name in ("half", "two\nlines", "gone"):
    file = open(name, "w")  # noqa: SIM115 - it is never closed
    file.write("begun")
    file.flush()
    held.append(file)
os.unlink("gone")
with open("read", "w"):
    pass
held.append(open("read"))  # noqa: SIM115
if not os.path.exists("pipe"):
    os.mkfifo("pipe")
held.append(open("pipe", "r+b", buffering=0))  # noqa: SIM115
with open("childs", "w") as file:
    child = subprocess.Popen(["sleep", "60"], stdout=file)
print("up", flush=True)
time.sleep(60)
