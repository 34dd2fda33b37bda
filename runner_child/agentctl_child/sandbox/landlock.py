"""Landlock's signal scope: nothing in the domain can signal anything outside it.

ABI 6, kernel 6.12.  A domain of any kind also forbids ptrace-like access to
processes outside it.  Files and network are left alone.
"""

import ctypes
import functools
import os
import struct
from typing import Final

from agentctl_child.sandbox import syscalls

_ASK_VERSION: Final = 1
_FIRST_ABI_WITH_SCOPES: Final = 6
_SCOPE_SIGNAL: Final = 2


@functools.cache
def abi() -> int:
    """The Landlock version of this kernel; 0 if it has none or it is switched off."""
    try:
        return syscalls.syscall("landlock", syscalls.LANDLOCK_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def has_signal_scope() -> bool:
    """Whether `scope_signals` works here."""
    return abi() >= _FIRST_ABI_WITH_SCOPES


def scope_signals() -> None:
    """Shut this process and its future children in.  Needs no_new_privs."""
    # struct landlock_ruleset_attr: handled_access_fs, handled_access_net, scoped.
    attribute = ctypes.create_string_buffer(struct.pack("=3Q", 0, 0, _SCOPE_SIGNAL), 24)
    ruleset = syscalls.syscall(
        "landlock_create_ruleset", syscalls.LANDLOCK_CREATE_RULESET, attribute, 24, 0
    )
    try:
        syscalls.syscall("landlock_restrict_self", syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
