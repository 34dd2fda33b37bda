"""Stop the kernel in the middle of a copy, by userfaultfd: none is to be had.

A page whose fault is answered late turns a narrow race in the kernel into a wide one.
"""

import ctypes
import errno
import fcntl
import os
import struct

from attempt import Blocked, attempt, may_lack, only_root, syscall

_USERFAULTFD = 323
_USER_MODE_ONLY = 1
_API_VERSION = 0xAA
_UFFDIO_API = 0xC018_AA3F
_NEW_BY_DEVICE = 0xAA00


def _ready(descriptor: int) -> str:
    request = bytearray(struct.pack("=3Q", _API_VERSION, 0, 0))
    fcntl.ioctl(descriptor, _UFFDIO_API, request)
    _, _, calls = struct.unpack("=3Q", request)
    if not calls:
        raise Blocked("it can do nothing")
    return f"a descriptor with calls {calls:#x}"


def for_the_kernel() -> str:
    only_root()
    return _ready(syscall(_USERFAULTFD, os.O_CLOEXEC))


def for_itself() -> str:
    """As every user may, unless a sandbox says otherwise."""
    return _ready(syscall(_USERFAULTFD, os.O_CLOEXEC | _USER_MODE_ONLY))


def by_device() -> str:
    """Without the system call (Linux 6.1)."""
    only_root()
    with may_lack("/dev/userfaultfd", errno.ENOENT):
        device = os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC)
    descriptor = fcntl.ioctl(device, _NEW_BY_DEVICE, ctypes.c_ulong(os.O_CLOEXEC).value)
    return _ready(descriptor)


attempt({"userfaultfd": for_the_kernel, "user_mode": for_itself, "device": by_device})
