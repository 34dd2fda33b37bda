"""Make all readable memory executable, or its addresses known, by personality(2): refused."""

import ctypes
import mmap
import subprocess

from attempt import Blocked, attempt, libc, syscall

_PERSONALITY = 135
_ASK = 0xFFFF_FFFF
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_READ_IMPLIES_EXEC, _NO_RANDOM_ADDRESSES = 0x40_0000, 0x4_0000

libc.mmap.restype = ctypes.c_size_t
libc.mmap.argtypes = [
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
]


def _set(flag: int) -> None:
    syscall(_PERSONALITY, flag)
    now = syscall(_PERSONALITY, _ASK)
    if now & flag != flag:
        raise Blocked(f"it is {now:#x}")


def executable_memory() -> str:
    _set(_READ_IMPLIES_EXEC)
    address = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, _PRIVATE, -1, 0)
    with open("/proc/self/maps") as maps:
        (mapping,) = (line for line in maps if line.startswith(f"{address:x}-"))
    if mapping.split()[1] != "r-xp":
        raise Blocked(mapping)
    return f"memory for data can be run: {mapping.strip()}"


def known_addresses() -> str:
    _set(_NO_RANDOM_ADDRESSES)
    seen = {subprocess.check_output(["cat", "/proc/self/maps"], text=True) for _ in range(3)}
    if len(seen) > 1:
        raise Blocked("addresses differ")
    return f"every start is at {seen.pop().partition('-')[0]}"


attempt({"read_implies_exec": executable_memory, "no_randomize": known_addresses})
