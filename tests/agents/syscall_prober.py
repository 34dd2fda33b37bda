"""Makes system calls by number, each in a process of its own, and says what the kernel answered.

Its argument is JSON: ``filters`` (hexadecimal seccomp programs to install first, in order),
``uid`` (whom to become before that, or null) and ``calls``, each a list of a number and
arguments: integers, strings (pointers to them), or ``"int80"`` alone for a call by i386's
door.  Prints JSON: for each call the name of the error, ``ok``, or the signal that it died of.
"""

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import sys

from agentctl_child.sandbox import prctl, seccomp

Call = list[int | str]
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
#: mov eax, 20 (getpid of i386); int 0x80; ret
GETPID_BY_INT_80 = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"


def call_by_number(call: Call) -> int:
    words = [ctypes.c_long(a) if isinstance(a, int) else ctypes.c_char_p(a.encode()) for a in call]
    ctypes.set_errno(0)
    return ctypes.get_errno() if libc.syscall(*words) == -1 else 0


def call_as_i386() -> int:
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(GETPID_BY_INT_80)
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    # The kernel keeps only the lower half of a pid for i386, which is all of it.
    return 0 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid() else errno.ENOSYS


def outcome(call: Call) -> str:
    """Make the call in a child: it may change what a process is, or make another one."""
    child = os.fork()
    if child == 0:
        os._exit(call_as_i386() if call == ["int80"] else call_by_number(call))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        return signal.Signals(-code).name
    return errno.errorcode[code] if code else "ok"


def main(order: str) -> None:
    told = json.loads(order)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if told["uid"] is not None:
        os.setgroups([])
        os.setresgid(told["uid"], told["uid"], told["uid"])
        os.setresuid(told["uid"], told["uid"], told["uid"])
    prctl.forbid_new_privileges()
    for program in told["filters"]:
        seccomp.install(bytes.fromhex(program))
    print(json.dumps([outcome(call) for call in told["calls"]]))


if __name__ == "__main__":
    main(sys.argv[1])
