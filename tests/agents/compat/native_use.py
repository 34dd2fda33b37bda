"""Compiled code: ctypes callbacks, memory that is written and then executed, big allocations."""

import ctypes
import mmap
import platform
import sys

RETURN_42 = {"x86_64": b"\xb8\x2a\x00\x00\x00\xc3", "aarch64": b"\x40\x05\x80\x52\xc0\x03\x5f\xd6"}


def main() -> None:
    numbers = (ctypes.c_int * 4)(3, 1, 4, 1)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.POINTER(ctypes.c_int)] * 2)
    compare = kind(lambda a, b: a[0] - b[0])
    ctypes.CDLL(None).qsort(numbers, 4, ctypes.sizeof(ctypes.c_int), compare)
    assert list(numbers) == [1, 1, 3, 4]
    if code := RETURN_42.get(platform.machine()):
        protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=protection)
        memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        assert ctypes.CFUNCTYPE(ctypes.c_int)(address)() == 42
    assert len(bytearray(256 << 20)) == 256 << 20
    for name in sys.argv[1:]:
        __import__(name)
    print("all of it works")


if __name__ == "__main__":
    main()
