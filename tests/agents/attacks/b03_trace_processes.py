"""Trace a process of the host's, read its memory, take its descriptors: no such process."""

import ctypes
import os

from attempt import FACTS, Blocked, attempt, checked, libc, syscall

VICTIM = FACTS["victim_pid"]
_PTRACE_ATTACH = 16
_PTRACE_SEIZE = 0x4206
_SYS_PIDFD_GETFD = 438
_SYS_KCMP = 312
_KCMP_FILE = 0


class IoVector(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def stack() -> tuple[int, int]:
    """Where the victim's environment is, in its memory."""
    with open(f"/proc/{VICTIM}/maps") as file:
        for line in file:
            if line.rstrip().endswith("[stack]"):
                first, last = line.split()[0].split("-")
                return int(first, 16), int(last, 16)
    raise Blocked("no stack")


def trace(request: int) -> None:
    checked(libc.ptrace(request, VICTIM, None, None))


def secret_in(data: bytes) -> str:
    found = data.rfind(b"planted-")
    if found < 0:
        raise Blocked("no secret in what was read")
    return data[found : found + 32].decode()


def read_memory() -> str:
    first, last = stack()
    buffer = ctypes.create_string_buffer(last - first)
    here = IoVector(ctypes.addressof(buffer), last - first)
    there = IoVector(first, last - first)
    checked(
        libc.process_vm_readv(VICTIM, ctypes.byref(here), 1, ctypes.byref(there), 1, 0),
    )
    return secret_in(buffer.raw)


def write_memory() -> None:
    _, last = stack()
    buffer = ctypes.create_string_buffer(b"\0" * 8)
    here, there = IoVector(ctypes.addressof(buffer), 8), IoVector(last - 8, 8)
    checked(libc.process_vm_writev(VICTIM, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def open_memory(flags: int) -> str:
    first, last = stack()
    descriptor = os.open(f"/proc/{VICTIM}/mem", flags)
    return secret_in(os.pread(descriptor, last - first, first))


def take_descriptor() -> str:
    taken = syscall(_SYS_PIDFD_GETFD, os.pidfd_open(VICTIM), 0, 0)
    return os.pread(taken, 4096, 0).decode()


attempt(
    {
        "PTRACE_SEIZE": lambda: trace(_PTRACE_SEIZE),
        "PTRACE_ATTACH": lambda: trace(_PTRACE_ATTACH),
        "process_vm_readv": read_memory,
        "process_vm_writev": write_memory,
        "/proc/PID/mem": lambda: open_memory(os.O_RDONLY),
        "/proc/PID/mem, writing": lambda: open_memory(os.O_RDWR),
        "pidfd_getfd": take_descriptor,
        "kcmp": lambda: syscall(_SYS_KCMP, VICTIM, os.getpid(), _KCMP_FILE, 0, 0),
    }
)
