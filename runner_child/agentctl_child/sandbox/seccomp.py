"""The filters that an agent gets, and their installation in a process: seccomp(2).

Filters stack: the strictest of them answers each call. So `surface_filter` and `keeper_filter` can
be installed in any order, and an agent can only add filters.
"""

import ctypes
from typing import Final

from agentctl_child.sandbox import syscalls
from agentctl_child.sandbox.bpf import is_supported
from agentctl_child.sandbox.keeper_filter import keeper_filter
from agentctl_child.sandbox.surface_filter import surface_filter

__all__ = ["install", "is_supported", "keeper_filter", "surface_filter"]

_SET_MODE_FILTER: Final = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install(program: bytes) -> None:
    """Put this process and all that it will start under ``program``. Needs no_new_privs.

    SECCOMP_FILTER_FLAG_SPEC_ALLOW is not set. If the kernel ties the mitigations of speculative
    attacks to seccomp (before 5.16), they therefore stay on for untrusted code.
    """
    instructions = ctypes.create_string_buffer(program, len(program))
    description = _Program(len(program) // 8, ctypes.addressof(instructions))
    syscalls.syscall("seccomp", syscalls.SECCOMP, _SET_MODE_FILTER, 0, ctypes.byref(description))
