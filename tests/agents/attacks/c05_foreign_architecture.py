"""Make system calls in the numbering of another architecture: none is answered.

A filter that knows the numbers of x86_64 takes i386's getpid for writev.
"""

import ctypes
import mmap
import os
import struct

from attempt import FACTS, Blocked, attempt, libc

_X32_BIT = 0x4000_0000
_GETPID, _GETPID_OF_I386, _EXIT_OF_I386, _UNSHARE_OF_I386 = 39, 20, 1, 310
_NEWUSER = 0x1000_0000


def _i386(number: int, argument: int = 0) -> int:
    """What the 32-bit call *number* gives to a 64-bit program (int 0x80)."""
    code = (
        b"\x53"  # push rbx
        + struct.pack("<BI", 0xB8, number)  # mov eax
        + struct.pack("<BI", 0xBB, argument)  # mov ebx
        + b"\xcd\x80\x5b\xc3"  # int 0x80; pop rbx; ret
    )
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def by_interrupt() -> str:
    got = _i386(_GETPID_OF_I386)
    if got != os.getpid():
        raise Blocked(f"int 0x80 gave {got}")
    return f"i386's getpid gave {got}"


def namespace_by_interrupt() -> str:
    before = os.readlink("/proc/self/ns/user")
    got = _i386(_UNSHARE_OF_I386, _NEWUSER)
    after = os.readlink("/proc/self/ns/user")
    if after == before:
        raise Blocked(f"int 0x80 gave {got}")
    return f"{before} became {after} by i386's unshare"


def x32() -> str:
    got = libc.syscall(ctypes.c_long(_X32_BIT | _GETPID))
    if got != os.getpid():
        raise OSError(ctypes.get_errno(), "")
    return f"x32's getpid gave {got}"


def program_of_another_architecture() -> str:
    """A file of 32-bit code, made here, that says 42 by its exit code."""
    base, header, program = 0x0804_8000, 52, 32
    code = struct.pack("<BIBI", 0xB8, _EXIT_OF_I386, 0xBB, 42) + b"\xcd\x80"
    size = header + program + len(code)
    image = (
        b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
        # An executable for i386, with one segment that is itself.
        + struct.pack("<HHIIII", 2, 3, 1, base + header + program, header, 0)
        + struct.pack("<IHHHHHH", 0, header, program, 1, 0, 0, 0)
        + struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, mmap.PAGESIZE)
        + code
    )
    path = os.path.join(FACTS["workspace"], "program-of-i386")
    with open(path, "wb") as file:
        file.write(image)
    os.chmod(path, 0o755)
    pid = os.fork()
    if pid == 0:
        try:
            os.execv(path, [path])
        except OSError as error:
            os._exit(100 + (error.errno or 0) % 100)
    code_or_signal = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code_or_signal != 42:
        raise Blocked(f"it ended with {code_or_signal}")
    return "a 32-bit program said 42"


attempt(
    {
        "int80": by_interrupt,
        "int80_unshare": namespace_by_interrupt,
        "x32": x32,
        "i386_program": program_of_another_architecture,
    }
)
