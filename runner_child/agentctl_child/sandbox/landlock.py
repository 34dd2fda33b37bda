"""Landlock: what an agent that shares a pid namespace with its keepers must not reach.

A domain of any kind (ABI 1, kernel 5.13) forbids ptrace-like access, such as writing
``/proc/<pid>/mem``, to processes outside it.  Ours also forbids writing anywhere under
/sys, where control groups are: whoever owns their files, as a user does those that
systemd delegates, could freeze its keepers.  From ABI 6 on (kernel 6.12) nothing in the
domain can signal anything outside it.  Other files, and the network, are left alone.
"""

import ctypes
import functools
import os
import struct
from typing import Final

from agentctl_child.sandbox import syscalls

_ASK_VERSION: Final = 1
_FIRST_ABI_WITH_NETWORK: Final = 4
_FIRST_ABI_WITH_SCOPES: Final = 6
_SCOPE_SIGNAL: Final = 2
_WRITE_FILE: Final = 2
_PATH_BENEATH: Final = 1
_KEPT_FROM_WRITING: Final = "sys"


@functools.cache
def abi() -> int:
    """The Landlock version of this kernel; 0 if it has none or it is switched off."""
    try:
        return syscalls.syscall("landlock", syscalls.LANDLOCK_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def has_signal_scope() -> bool:
    """Whether `shut_in` forbids signals to the outside here."""
    return abi() >= _FIRST_ABI_WITH_SCOPES


def shut_in() -> None:
    """Shut this process and its future children in.  Needs no_new_privs.  Raises OSError."""
    attribute = _ruleset_attribute()
    ruleset = syscalls.syscall(
        "landlock_create_ruleset",
        syscalls.LANDLOCK_CREATE_RULESET,
        ctypes.create_string_buffer(attribute, len(attribute)),
        len(attribute),
        0,
    )
    try:
        # Rules only ever add: everything at the top but /sys.
        for name in os.listdir("/"):
            if name != _KEPT_FROM_WRITING:
                _allow_writing(ruleset, f"/{name}")
        syscalls.syscall("landlock_restrict_self", syscalls.LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _ruleset_attribute() -> bytes:
    """A struct landlock_ruleset_attr: handled_access_fs, handled_access_net, scoped.

    Only as long as this kernel knows it.
    """
    if has_signal_scope():
        return struct.pack("=3Q", _WRITE_FILE, 0, _SCOPE_SIGNAL)
    if abi() >= _FIRST_ABI_WITH_NETWORK:
        return struct.pack("=2Q", _WRITE_FILE, 0)
    return struct.pack("=Q", _WRITE_FILE)


def _allow_writing(ruleset: int, path: str) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # a dangling link, or nothing that we may enter: nothing to write to
        return
    try:
        # struct landlock_path_beneath_attr is packed: allowed_access, parent_fd.
        rule = struct.pack("=Qi", _WRITE_FILE, beneath)
        syscalls.syscall(
            "landlock_add_rule",
            syscalls.LANDLOCK_ADD_RULE,
            ruleset,
            _PATH_BENEATH,
            ctypes.create_string_buffer(rule, len(rule)),
            0,
        )
    finally:
        os.close(beneath)
