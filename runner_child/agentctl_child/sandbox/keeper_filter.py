"""The filter that protects the keepers from an agent that shares a pid namespace with them.

It forbids every call that can signal, trace, read or starve a process named by number. Everything
else is allowed. If the kernel has Landlock's signal scope, that is the first barrier and this
filter is the second: not all threads of a supervisor can be known by number.
"""

import errno
from collections.abc import Iterable
from typing import Final

from agentctl_child.sandbox import bpf
from agentctl_child.sandbox.bpf import Condition, Rule

#: Calls that no agent needs, on whichever process.
_NEVER: Final = {
    "ptrace": "could take over a keeper",
    "process_vm_readv": "could read a keeper's memory",
    "process_vm_writev": "could write a keeper's memory",
    "process_madvise": "could page a keeper out",
    "process_mrelease": "could take a keeper's memory",
    "kcmp": "tells what a keeper has open",
    "migrate_pages": "could move a keeper's memory",
    "move_pages": "could move a keeper's memory",
    "pidfd_send_signal": "could signal a keeper",
    "pidfd_getfd": "could take a keeper's descriptors",
    "tkill": "takes a thread's number, and a supervisor has threads that nobody told us of",
}
#: The argument that names a process; that process must not be a keeper.
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
#: The same for calls in which a negative number names a group, and -1 all processes.
_NOT_A_KEEPERS_GROUP: Final = (
    ("kill", 0),
    ("tgkill", 0),
    ("tgkill", 1),
    ("rt_sigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 0),
    ("rt_tgsigqueueinfo", 1),
)
_BY_VALUE: Final = (
    ("setpriority", 0, (2,), "PRIO_USER", "all processes of the uid, the keepers too"),
    ("ioprio_set", 0, (3,), "IOPRIO_WHO_USER", "all processes of the uid, the keepers too"),
    (
        "fcntl",
        1,
        (8, 10, 15),
        "F_SETOWN, F_SETSIG, F_SETOWN_EX",
        "the kernel would send the signal in our place",
    ),
    ("ioctl", 1, (0x8901, 0x8902), "FIOSETOWN, SIOCSPGRP", "the same for sockets"),
)


def keeper_filter(keepers: Iterable[int], groups: Iterable[int] = ()) -> bytes:
    """Return the program that protects the processes *keepers* and the process groups *groups*.

    The groups of the keepers themselves are always protected.
    """
    return bpf.assemble(rules(keepers, groups))


def rules(keepers: Iterable[int], groups: Iterable[int] = ()) -> tuple[Rule, ...]:
    """Return the rules of that program.

    Processes and commands are 32-bit: the kernel ignores an argument's upper half.
    """
    own = tuple(sorted(set(keepers)))
    signalled = (*own, *(-n for n in sorted({*own, *groups})), -1)
    never = [Rule(call, errno.EPERM, reason) for call, reason in _NEVER.items()]
    named = [
        _refuse(call, argument, own, "a keeper", "could starve a keeper, or get a hold of it")
        for call, argument in _NOT_A_KEEPER
    ]
    signals = [
        _refuse(call, argument, signalled, "a keeper, its group, or -1", "could kill a keeper")
        for call, argument in _NOT_A_KEEPERS_GROUP
    ]
    by_value = [_refuse(*row) for row in _BY_VALUE]
    # Only on itself (pid 0): RLIMIT_CPU on a keeper would kill it.
    limits = Rule(
        "prlimit64",
        errno.EPERM,
        "RLIMIT_CPU kills",
        "not on itself",
        (Condition(0, (0,), negated=True),),
    )
    return (*never, *named, *signals, *by_value, limits)


def _refuse(call: str, argument: int, values: tuple[int, ...], when: str, reason: str) -> Rule:
    return Rule(call, errno.EPERM, reason, when, (Condition(argument, values),))
