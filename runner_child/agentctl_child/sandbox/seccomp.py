"""The filter that keeps an agent's hands off its keepers where they share a pid namespace.

It forbids every call that can signal, trace, read or starve a process named by
number; all else is allowed.  Where the kernel has Landlock's signal scope, that
is the first wall and this the second: by number, the threads of a supervisor
cannot all be known.  Classic BPF, checked by the kernel on each system call
whose number is in the table (seccomp(2)).
"""

import ctypes
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from agentctl_child.sandbox import syscalls

_MACHINE: Final = os.uname().machine
_AUDIT_ARCH: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32_BIT: Final = 0x4000_0000

# name: number on x86_64, on aarch64 (untested).
_NUMBERS: Final = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
}

#: Nothing that an agent needs, on whichever process.
_NEVER: Final = (
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "process_mrelease",
    "kcmp",
    "migrate_pages",
    "move_pages",
    "pidfd_send_signal",
    "pidfd_getfd",
    # Takes a thread's number, and a supervisor has threads that nobody told us of.
    "tkill",
)
#: The argument that names a process which must not be a keeper.
_NOT_A_KEEPER: Final = (
    ("pidfd_open", 0),
    ("perf_event_open", 1),
    ("setpriority", 1),
    ("ioprio_set", 1),
    ("sched_setparam", 0),
    ("sched_setscheduler", 0),
    ("sched_setaffinity", 0),
    ("sched_setattr", 0),
)
#: The same, where a negative number names a group and -1 everybody.
_NOT_A_KEEPERS_GROUP: Final = (
    ("kill", 0),
    ("tgkill", 0),
    ("tgkill", 1),
    ("rt_sigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 1),
)
_FORBIDDEN_VALUES: Final = (
    ("setpriority", 0, (2,)),  # PRIO_USER: all processes of the uid, the keepers too
    ("ioprio_set", 0, (3,)),  # IOPRIO_WHO_USER
    # F_SETOWN, F_SETSIG, F_SETOWN_EX: the kernel would send the signal in our place.
    ("fcntl", 1, (8, 10, 15)),
    ("ioctl", 1, (0x8901, 0x8902)),  # FIOSETOWN and SIOCSPGRP: the same for sockets
)

_LOAD: Final = 0x20
_JUMP_IF_EQUAL: Final = 0x15
_JUMP_IF_GREATER_OR_EQUAL: Final = 0x35
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF_0000
_REFUSE: Final = 0x0005_0001  # SECCOMP_RET_ERRNO | EPERM
_NO_SUCH_CALL: Final = 0x0005_0026  # SECCOMP_RET_ERRNO | ENOSYS
_KILL_PROCESS: Final = 0x8000_0000
_OFFSET_OF_NUMBER: Final = 0
_OFFSET_OF_ARCH: Final = 4
_OFFSET_OF_ARGUMENTS: Final = 16
_SET_MODE_FILTER: Final = 1

_Instruction = tuple[int, int, int, int]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def is_supported() -> bool:
    """Whether there is a table for this machine."""
    return _MACHINE in _AUDIT_ARCH


def keeper_filter(keepers: Iterable[int], groups: Iterable[int] = ()) -> bytes:
    """The program that protects processes ``keepers``, and process ``groups`` beside theirs."""
    own = sorted(set(keepers))
    signalled = [*own, *(-n for n in sorted({*own, *groups})), -1]
    column = 0 if _MACHINE == "x86_64" else 1
    number = {name: numbers[column] for name, numbers in _NUMBERS.items()}

    program: list[_Instruction] = [
        (_LOAD, 0, 0, _OFFSET_OF_ARCH),
        (_JUMP_IF_EQUAL, 1, 0, _AUDIT_ARCH[_MACHINE]),
        # Another architecture's numbers mean other calls.
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_OF_NUMBER),
    ]
    if _MACHINE == "x86_64":
        program += [
            (_JUMP_IF_GREATER_OR_EQUAL, 0, 1, _X32_BIT),
            (_RETURN, 0, 0, _NO_SUCH_CALL),
        ]
    for name in _NEVER:
        program += [(_JUMP_IF_EQUAL, 0, 1, number[name]), (_RETURN, 0, 0, _REFUSE)]
    for name, argument in _NOT_A_KEEPER:
        program += _refuse_values(number[name], argument, own)
    for name, argument in _NOT_A_KEEPERS_GROUP:
        program += _refuse_values(number[name], argument, signalled)
    for name, argument, values in _FORBIDDEN_VALUES:
        program += _refuse_values(number[name], argument, values)
    program += [
        # prlimit64 on itself (pid 0) only: RLIMIT_CPU on a keeper would kill it.
        (_JUMP_IF_EQUAL, 0, 4, number["prlimit64"]),
        (_LOAD, 0, 0, _OFFSET_OF_ARGUMENTS),
        (_JUMP_IF_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _OFFSET_OF_NUMBER),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refuse_values(number: int, argument: int, values: Sequence[int]) -> list[_Instruction]:
    # Processes and commands are 32-bit: the kernel ignores an argument's upper half.
    tests: list[_Instruction] = []
    for value in values:
        tests += [
            (_JUMP_IF_EQUAL, 0, 1, value & 0xFFFF_FFFF),
            (_RETURN, 0, 0, _REFUSE),
        ]
    return [
        (_JUMP_IF_EQUAL, 0, len(tests) + 2, number),
        (_LOAD, 0, 0, _OFFSET_OF_ARGUMENTS + 8 * argument),
        *tests,
        (_LOAD, 0, 0, _OFFSET_OF_NUMBER),
    ]


def install(program: bytes) -> None:
    """Put this process and all that it will start under ``program``.  Needs no_new_privs."""
    instructions = ctypes.create_string_buffer(program, len(program))
    description = _Program(len(program) // 8, ctypes.addressof(instructions))
    syscalls.syscall("seccomp", syscalls.SECCOMP, _SET_MODE_FILTER, 0, ctypes.byref(description))
