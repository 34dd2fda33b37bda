"""Write to a file through io_uring, which makes no write call: no ring is to be had.

Whatever a ring does, seccomp never sees: files, sockets, even connect(2).
"""

import ctypes
import errno
import mmap
import os
import struct

from attempt import Blocked, attempt, may_lack, syscall

_IO_URING_SETUP, _IO_URING_ENTER, _IO_URING_REGISTER = 425, 426, 427
_OFFSET_OF_SQES = 0x1000_0000
_SIZE_OF_SQE = 64
_SIZE_OF_CQE = 16
_GETEVENTS = 1
_OP_WRITE = 23
_SEND_MESSAGE, _NO_RING = 31, -1
_NO_ADDRESS = 1
_MARK = b"written by a ring"


class _Params(ctypes.Structure):
    _fields_ = (
        ("sq_entries", ctypes.c_uint32),
        ("cq_entries", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("of_threads", ctypes.c_uint32 * 3),
        ("reserved", ctypes.c_uint32 * 4),
        # head, tail, ring_mask, ring_entries, flags, dropped, array, and two that are reserved
        ("sq", ctypes.c_uint32 * 10),
        # head, tail, ring_mask, ring_entries, overflow, cqes, flags, and reserved
        ("cq", ctypes.c_uint32 * 10),
    )


def write_by_ring() -> str:
    params = _Params()
    ring = syscall(_IO_URING_SETUP, 4, ctypes.byref(params))
    size = max(
        params.sq[6] + 4 * params.sq_entries,
        params.cq[5] + _SIZE_OF_CQE * params.cq_entries,
    )
    # One mapping for both rings (IORING_FEAT_SINGLE_MMAP, Linux 5.4).
    rings = mmap.mmap(ring, size, offset=0)
    entries = mmap.mmap(ring, _SIZE_OF_SQE * params.sq_entries, offset=_OFFSET_OF_SQES)
    reading, writing = os.pipe()
    mark = ctypes.create_string_buffer(_MARK, len(_MARK))
    entry = struct.pack(
        "<BBHiQQIIQ", _OP_WRITE, 0, 0, writing, 0, ctypes.addressof(mark), len(_MARK), 0, 7
    )
    entries[: len(entry)] = entry
    struct.pack_into("<I", rings, params.sq[6], 0)
    struct.pack_into("<I", rings, params.sq[1], 1)
    syscall(_IO_URING_ENTER, ring, 1, 1, _GETEVENTS, None, 0)
    os.set_blocking(reading, False)
    read = os.read(reading, 64)
    if read != _MARK:
        raise Blocked(f"read {read!r}")
    return read.decode()


def ring_for_nobody() -> str:
    """A call that needs no ring (Linux 6.13): that the kernel looks at it is enough."""
    with may_lack("call without a ring", errno.EINVAL, errno.EBADF):
        try:
            syscall(_IO_URING_REGISTER, _NO_RING, _SEND_MESSAGE, _NO_ADDRESS, 1)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
    return "the kernel looked for a message"


attempt({"io_uring": write_by_ring, "register": ring_for_nobody})
