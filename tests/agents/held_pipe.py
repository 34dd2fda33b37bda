"""Holds the lock of one of its pipes for half a minute: it waits for a page that never comes.

The arguments name the pipe, and a FIFO that is opened and closed once it has the lock.  The kernel
copies from or to that page under the lock (userfaultfd(2), by the device, which is root's).
"""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import threading

from raw_channel import frame, pack

PIPE, FIFO = sys.argv[1:]
HOW_LONG_S = 30
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.read.argtypes = LIBC.write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
USERFAULTFD_IOC_NEW, UFFDIO_API, UFFDIO_REGISTER = 0xAA00, 0xC018AA3F, 0xC020AA00
AREA = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
READS, WRITES = map(int, os.environ["AGENTCTL_CHANNEL_FD"].split(","))


def missing_page() -> tuple[int, int]:
    """The address of a page that nobody brings, and a descriptor that tells when it is wanted."""
    with open("/dev/userfaultfd", "r+b", buffering=0) as device:
        told = fcntl.ioctl(device, USERFAULTFD_IOC_NEW, os.O_CLOEXEC)
    fcntl.ioctl(told, UFFDIO_API, struct.pack("QQQ", 0xAA, 0, 0))
    address = ctypes.addressof(ctypes.c_char.from_buffer(AREA))
    missing = 1
    fcntl.ioctl(told, UFFDIO_REGISTER, struct.pack("QQQQ", address, mmap.PAGESIZE, missing, 0))
    return address, told


def tell(told: int) -> None:
    os.read(told, 32)
    os.close(os.open(FIFO, os.O_WRONLY))
    if PIPE == "answers":
        os.write(WRITES, frame(pack({"type": "ask", "call": "1", "kind": "tool", "name": "x"})))


signal.alarm(HOW_LONG_S)
address, told = missing_page()
fd = {"stdin": 0, "stdout": 1, "stderr": 2, "channel": WRITES, "answers": READS}[PIPE]
if PIPE in ("channel", "answers"):
    os.write(WRITES, frame(pack({"type": "hello", "version": 1})) + frame(pack({"type": "ready"})))
threading.Thread(target=tell, args=(told,), daemon=True).start()
if PIPE in ("stdin", "answers"):
    LIBC.read(fd, address, 1)
else:
    # Whoever reads the pipe is just about to when the lock is taken.
    os.write(fd, frame(pack({"type": "beat"})) if PIPE == "channel" else b".")
    LIBC.write(fd, address, 1)
signal.pause()
