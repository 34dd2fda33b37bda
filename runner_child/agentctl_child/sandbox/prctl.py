"""The settings that a process can ask of the kernel for itself alone: prctl(2)."""

import contextlib
import ctypes
import signal
from collections.abc import Iterator
from typing import Final

from agentctl_child.sandbox import syscalls

_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_SET_NAME: Final = 15
_SET_TIMERSLACK: Final = 29
_SET_CHILD_SUBREAPER: Final = 36
_GET_CHILD_SUBREAPER: Final = 37
_SET_NO_NEW_PRIVS: Final = 38


def signal_at_parents_death(number: int = signal.SIGKILL) -> None:
    """Let the kernel send ``number`` when the *thread* that forked us ends.

    setresuid and setresgid clear the setting. The signal is permission-checked, so a parent of
    another uid must be root's. It is only the fastest of the triggers.
    """
    syscalls.prctl("PR_SET_PDEATHSIG", _SET_PDEATHSIG, int(number))


def set_dumpable(dumpable: bool) -> None:
    """Allow or forbid ptrace, pidfd_getfd and /proc/<pid>/mem to processes of our uid.

    The setting is inherited over fork. It also decides if our files in /proc belong to us or to
    root.
    """
    syscalls.prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, int(dumpable))


@contextlib.contextmanager
def owning_proc_files() -> Iterator[None]:
    """Be dumpable within the block; else our files in /proc/self belong to root, proc_pid(5).

    Only for a process that holds nothing yet that another process of its uid could want.
    """
    set_dumpable(True)
    try:
        yield
    finally:
        set_dumpable(False)


def become_subreaper() -> None:
    """Let orphans among our descendants become our children."""
    syscalls.prctl("PR_SET_CHILD_SUBREAPER", _SET_CHILD_SUBREAPER, 1)


def is_subreaper() -> bool:
    """Return what the kernel says about it."""
    answer = ctypes.c_int()
    syscalls.prctl("PR_GET_CHILD_SUBREAPER", _GET_CHILD_SUBREAPER, ctypes.byref(answer))
    return bool(answer.value)


def forbid_new_privileges() -> None:
    """Let no exec below us gain a privilege; this also permits us to install a seccomp filter."""
    syscalls.prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVS, 1)


def set_timer_slack(nanoseconds: int) -> None:
    """Set how much too late this process may be woken up; inherited over fork and exec."""
    syscalls.prctl("PR_SET_TIMERSLACK", _SET_TIMERSLACK, nanoseconds)


def set_name(name: bytes) -> None:
    """Set the short name in ps; the kernel keeps 15 bytes."""
    syscalls.prctl("PR_SET_NAME", _SET_NAME, ctypes.c_char_p(name))
