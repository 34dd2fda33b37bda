"""Load a program and a table into the kernel by bpf(2): refused.

The verifier is among the parts of the kernel with most holes; CVE-2021-3490 is but one.
"""

import ctypes
import struct

from attempt import Blocked, attempt, only_root, syscall

_BPF = 321
_MAP_CREATE, _MAP_LOOKUP, _MAP_UPDATE, _PROGRAM_LOAD = 0, 1, 2, 5
_ARRAY, _SOCKET_FILTER = 2, 1
_SIZE = 128


def _bpf(command: int, attributes: bytes) -> int:
    return syscall(_BPF, command, ctypes.create_string_buffer(attributes, _SIZE), _SIZE)


def table() -> str:
    only_root()
    number = _bpf(_MAP_CREATE, struct.pack("=4I", _ARRAY, 4, 8, 1))
    key, value = ctypes.c_uint32(0), ctypes.c_uint64(4711)
    read = ctypes.c_uint64(0)
    where = ctypes.addressof(key)
    _bpf(_MAP_UPDATE, struct.pack("=I4xQQQ", number, where, ctypes.addressof(value), 0))
    _bpf(_MAP_LOOKUP, struct.pack("=I4xQQQ", number, where, ctypes.addressof(read), 0))
    if read.value != value.value:
        raise Blocked(f"the table has {read.value}")
    return f"a table in the kernel holds {read.value}"


def program() -> str:
    only_root()
    # To give 0, and exit.
    code = struct.pack("=BBhi", 0xB7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "=IIQQ",
        _SOCKET_FILTER,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
    )
    return f"a program in the kernel, {_bpf(_PROGRAM_LOAD, attributes)}"


attempt({"map": table, "program": program})
