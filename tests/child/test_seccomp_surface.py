"""What the surface filter refuses, what it lets pass, and with which errors: asked of the kernel.

Each call is made twice, without the filter and under it, with arguments that harm nothing
if they get through, also where root makes them: addresses that lead nowhere, descriptors
and processes that do not exist, commands that nobody has defined.
"""

import errno
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from agentctl_child.sandbox import seccomp, surface_filter, syscall_numbers
from agentctl_protocol.vocabulary import Network
from agentctl_testkit import AGENTS, ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs

PROBER: Final = AGENTS / "syscall_prober.py"
NOWHERE: Final = 1  # no process has anything at this address
NOBODY: Final = 0x7FFF_FFFF  # above the highest pid there can be
MACHINE: Final = platform.machine()

Word = int | str


class Options(NamedTuple):
    """Arguments of `surface_filter`."""

    network: Network = Network.HOST
    unix_sockets: bool = True
    shares_host: bool = False
    user_namespaces: bool = False
    truncation: bool = True


STRICT: Final = Options()
STANDARD: Final = Options(network=Network.NONE, unix_sockets=False, shares_host=True)
STANDARD_WITH_NETWORK: Final = STANDARD._replace(network=Network.HOST)
OLD_KERNEL: Final = STANDARD._replace(truncation=False)
NESTED: Final = Options(user_namespaces=True)

#: Calls that are refused whatever their arguments.
ALWAYS: Final[dict[str, tuple[Word, ...]]] = {
    "clone3": (NOWHERE, 64),
    "setns": (-1, 0),
    "chroot": (NOWHERE,),
    "mount": (NOWHERE, NOWHERE, NOWHERE, 0, 0),
    "umount2": (NOWHERE, 0),
    "pivot_root": (NOWHERE, NOWHERE),
    "fsopen": (NOWHERE, 0),
    "fsconfig": (-1, 0, 0, 0, 0),
    "fsmount": (-1, 0, 0),
    "fspick": (-1, NOWHERE, 0),
    "move_mount": (-1, NOWHERE, -1, NOWHERE, 0),
    "open_tree": (-1, NOWHERE, 0),
    "open_tree_attr": (-1, NOWHERE, 0, 0, 0),
    "mount_setattr": (-1, NOWHERE, 0, NOWHERE, 32),
    "bpf": (0xFFFF, NOWHERE, 8),
    "init_module": (NOWHERE, 4096, NOWHERE),
    "finit_module": (-1, NOWHERE, 0),
    "delete_module": (NOWHERE, 0),
    "kexec_load": (0, 1, NOWHERE, 0),
    "kexec_file_load": (-1, -1, 0, NOWHERE, 0),
    "reboot": (0, 0, 0, 0),
    "swapon": (NOWHERE, 0),
    "swapoff": (NOWHERE,),
    "acct": (NOWHERE,),
    "quotactl": (0, 0, 0, 0),
    "quotactl_fd": (-1, 0, 0, 0),
    "syslog": (99, 0, 0),
    "settimeofday": (NOWHERE, 0),
    "clock_settime": (99, NOWHERE),
    "clock_adjtime": (99, NOWHERE),
    "adjtimex": (NOWHERE,),
    "sethostname": (NOWHERE, 1),
    "setdomainname": (NOWHERE, 1),
    "vhangup": (),
    "iopl": (99,),
    "ioperm": (0x0FFF_FFFF, 1, 1),
    "io_uring_setup": (0, NOWHERE),
    "io_uring_enter": (-1, 0, 0, 0, 0, 0),
    "io_uring_register": (-1, 0, 0, 0),
    "userfaultfd": (0xFF00_0000,),
    "perf_event_open": (NOWHERE, 0, -1, -1, 0),
    "keyctl": (9999, 0, 0, 0, 0),
    "add_key": (NOWHERE, NOWHERE, 0, 0, 0),
    "request_key": (NOWHERE, NOWHERE, 0, 0),
    "kcmp": (NOBODY, NOBODY, 0, 0, 0),
    "pidfd_getfd": (-1, 0, 0),
    "process_madvise": (-1, 0, 0, 0, 0),
    "migrate_pages": (NOBODY, 0, 0, 0),
    "move_pages": (NOBODY, 0, 0, 0, 0, 0),
    "fanotify_init": (0xFFFF_FFFF, 0),
    "fanotify_mark": (-1, 0, 0, -1, NOWHERE),
    "open_by_handle_at": (-1, NOWHERE, 0),
    "name_to_handle_at": (-1, NOWHERE, NOWHERE, NOWHERE, 0),
    "memfd_secret": (0xFF,),
    "modify_ldt": (0, NOWHERE, 0),
    "lookup_dcookie": (0, 0, 0),
    "nfsservctl": (0, 0, 0),
    "uselib": (NOWHERE,),
    "sysfs": (3, 0, 0),
    "_sysctl": (NOWHERE,),
}
#: The same at standard.
ALWAYS_SHARED: Final[dict[str, tuple[Word, ...]]] = {
    "shmget": (0, 0, 0),
    "shmat": (-1, 0, 0),
    "shmctl": (-1, 0, 0),
    "semget": (0, 0, 0),
    "semop": (-1, NOWHERE, 1),
    "semtimedop": (-1, NOWHERE, 1, 0),
    "semctl": (-1, 0, 0, 0),
    "msgget": (0x7F, 0),
    "msgsnd": (-1, NOWHERE, 1, 0),
    "msgrcv": (-1, NOWHERE, 1, 0, 0),
    "msgctl": (-1, 0, 0),
    "mq_open": (NOWHERE, 0, 0, 0),
    "mq_unlink": (NOWHERE,),
    "setxattr": (NOWHERE, NOWHERE, NOWHERE, 1, 0),
    "lsetxattr": (NOWHERE, NOWHERE, NOWHERE, 1, 0),
    "fsetxattr": (-1, NOWHERE, NOWHERE, 1, 0),
    "setxattrat": (-1, NOWHERE, 0, NOWHERE, NOWHERE, 16),
    "removexattr": (NOWHERE, NOWHERE),
    "lremovexattr": (NOWHERE, NOWHERE),
    "fremovexattr": (-1, NOWHERE),
    "removexattrat": (-1, NOWHERE, 0, NOWHERE),
    "file_setattr": (-1, NOWHERE, NOWHERE, 24, 0),
}
ALWAYS_OLD: Final[dict[str, tuple[Word, ...]]] = {
    "truncate": (NOWHERE, 0),
    "openat2": (-100, NOWHERE, NOWHERE, 24),
}


class Case(NamedTuple):
    """A call whose arguments decide.  ``answer``: the filter's error, 0 if it lets it pass.

    ``same``: the kernel itself gives that very error.
    """

    options: Options
    call: str
    arguments: tuple[Word, ...]
    answer: int
    same: bool = False

    def __str__(self) -> str:
        return f"{self.call}{self.arguments}"


SIGCHLD: Final = 17
NEW: Final = {
    "NEWTIME": 0x80,
    "NEWNS": 0x0002_0000,
    "NEWCGROUP": 0x0200_0000,
    "NEWUTS": 0x0400_0000,
    "NEWIPC": 0x0800_0000,
    "NEWUSER": 0x1000_0000,
    "NEWPID": 0x2000_0000,
    "NEWNET": 0x4000_0000,
}
TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS = 0x5412, 0x541C, 0x5423, 0x541D
FIONREAD: Final = 0x541B
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
NONBLOCK_CLOEXEC: Final = 0x8_0800
F_SETLEASE, F_GETLEASE, F_NOTIFY, F_SETDELEG = 1024, 1025, 1026, 1040
MPTCP, SCTP, SMC, UDPLITE, ICMP, TCP, UDP = 262, 132, 256, 136, 1, 6, 17
FASTOPEN: Final = 0x2000_0000

CASES: Final = (
    # On a descriptor that does not exist, the kernel says EBADF; a process group changes nothing.
    *(
        Case(STRICT, "clone", (flag | SIGCHLD, 0, 0, 0, 0), errno.EPERM)
        for name, flag in NEW.items()
        if name != "NEWTIME"
    ),
    Case(STRICT, "clone", (SIGCHLD, 0, 0, 0, 0), 0),
    # Behind the exit signal's bits, not a flag: clone(2) knows no CLONE_NEWTIME.
    Case(STRICT, "clone", (0x80, 0, 0, 0, 0), 0),
    *(Case(STRICT, "unshare", (flag,), errno.EPERM) for flag in NEW.values()),
    Case(STRICT, "unshare", (0x200 | 0x400,), 0),  # CLONE_FS | CLONE_FILES
    Case(NESTED, "unshare", (NEW["NEWUSER"],), 0),
    Case(NESTED, "clone", (NEW["NEWUSER"] | SIGCHLD, 0, 0, 0, 0), 0),
    Case(NESTED, "setns", (-1, 0), 0),
    *(
        case
        for mode, answer in ((0o4755, errno.EPERM), (0o2755, errno.EPERM), (0o1777, 0))
        for case in (
            Case(STRICT, "chmod", (NOWHERE, mode), answer),
            Case(STRICT, "fchmod", (-1, mode), answer),
            Case(STRICT, "fchmodat", (-1, NOWHERE, mode), answer),
            Case(STRICT, "fchmodat2", (-1, NOWHERE, mode, 0), answer),
            Case(STRICT, "mknod", (NOWHERE, 0o100000 | mode, 0), answer),
            Case(STRICT, "mknodat", (-1, NOWHERE, 0o100000 | mode, 0), answer),
        )
    ),
    Case(STRICT, "prctl", (29, 1), errno.EPERM),  # PR_SET_TIMERSLACK
    Case(STRICT, "prctl", (30,), 0),  # PR_GET_TIMERSLACK
    Case(STRICT, "personality", (0x40_0000,), errno.EPERM),  # READ_IMPLIES_EXEC
    Case(STRICT, "personality", (0x44_0000,), errno.EPERM),
    Case(STRICT, "personality", (0x10_0000,), errno.EPERM),  # MMAP_PAGE_ZERO
    *(
        Case(STRICT, "personality", (persona,), 0)
        for persona in (0xFFFF_FFFF, 0, 8, 0x2_0000, 0x2_0008, 0x4_0000)
    ),
    *(
        Case(STRICT, "ioctl", (-1, command, NOWHERE), errno.EPERM)
        for command in (
            TIOCSTI,
            TIOCLINUX,
            TIOCSETD,
            TIOCCONS,
            (1 << 32) | TIOCSTI,
            ~0 << 32 | TIOCLINUX,
        )
    ),
    *(
        Case(options, "ioctl", (-1, command, NOWHERE), 0)
        for options in (STRICT, STANDARD)
        # FICLONE, FICLONERANGE, FIDEDUPERANGE, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR
        for command in (
            FIONREAD,
            *(0x4004_9409, 0x4020_940D, 0xC018_9436, 0x8008_6601, 0x801C_581F),
        )
    ),
    *(
        Case(options, "ioctl", (-1, command, NOWHERE), errno.ENOTTY if options == STANDARD else 0)
        for options in (STRICT, STANDARD)
        # FS_IOC_SETFLAGS (and of 32 bits), FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY,
        # BTRFS_IOC_SUBVOL_CREATE, _SNAP_DESTROY, BCH_IOCTL_SUBVOLUME_CREATE
        for command in (
            *(0x4008_6602, 0x4004_6602, 0x401C_5820, 0x4080_6685),
            *(0x5000_940E, 0x5000_940F, 0x4020_BC10),
        )
    ),
    *(
        Case(options, "socket", (family, kind, 0), 0)
        for family in (INET, INET6)
        for kind in (STREAM, DGRAM, STREAM | NONBLOCK_CLOEXEC)
        for options in (STRICT, STANDARD_WITH_NETWORK)
    ),
    Case(STRICT, "socket", (INET, STREAM, TCP), 0),
    Case(STRICT, "socket", (INET6, DGRAM, UDP), 0),
    Case(STRICT, "socket", ((1 << 32) | INET, STREAM, 0), 0),
    Case(STRICT, "socket", (INET, STREAM, MPTCP), errno.EPROTONOSUPPORT),
    Case(STRICT, "socket", (INET6, STREAM, MPTCP), errno.EPROTONOSUPPORT),
    Case(STRICT, "socket", (INET, STREAM, SCTP), errno.EPROTONOSUPPORT, same=True),
    Case(STRICT, "socket", (INET, STREAM, SMC), errno.EPROTONOSUPPORT, same=True),
    Case(STRICT, "socket", (INET, DGRAM, UDPLITE), errno.EPROTONOSUPPORT),
    Case(STRICT, "socket", (INET, DGRAM, ICMP), errno.EPROTONOSUPPORT),
    Case(STRICT, "socket", (INET, RAW, 255), errno.EPERM),
    Case(STRICT, "socket", (INET6, RAW | NONBLOCK_CLOEXEC, ICMP), errno.EPERM),
    Case(STRICT, "socket", (INET, SEQPACKET, SCTP), errno.EPERM),
    Case(STRICT, "socket", (PACKET, RAW, 0), errno.EAFNOSUPPORT),
    Case(STRICT, "socket", (PACKET, DGRAM, 0), errno.EAFNOSUPPORT),
    *(
        Case(STRICT, "socket", (family, STREAM, 0), errno.EAFNOSUPPORT, same=True)
        for family in (0, 3, 4, 9, 15, 21, 29, 30, 31, ALG, VSOCK, 41, 42, 43, 44, 45, NOBODY)
    ),
    Case(STRICT, "socket", (NETLINK, RAW, 0), 0),
    Case(STRICT, "socket", (NETLINK, DGRAM | NONBLOCK_CLOEXEC, 0), 0),
    *(
        Case(STRICT, "socket", (NETLINK, RAW, protocol), errno.EPROTONOSUPPORT, protocol != 16)
        for protocol in (2, 4, 6, 9, 10, 11, 12, 15, 16, 18, 20, 21)
    ),
    *(
        Case(STRICT, call, (UNIX, kind, 0, *place), 0)
        for call, place in (("socket", ()), ("socketpair", (NOWHERE,)))
        for kind in (STREAM, DGRAM, SEQPACKET, RAW, STREAM | NONBLOCK_CLOEXEC)
    ),
    Case(STRICT, "socketpair", (INET, STREAM, 0, NOWHERE), errno.EOPNOTSUPP, same=True),
    Case(STRICT, "socketpair", (30, STREAM, 0, NOWHERE), errno.EOPNOTSUPP, same=True),
    *(
        Case(options, "socket", (UNIX, kind, 0), errno.EPERM)
        for kind in (STREAM, DGRAM, SEQPACKET, STREAM | NONBLOCK_CLOEXEC)
        for options in (STANDARD, STANDARD_WITH_NETWORK)
    ),
    Case(STANDARD, "socketpair", (UNIX, STREAM, 0, NOWHERE), 0),
    Case(STANDARD, "socketpair", (UNIX, SEQPACKET | NONBLOCK_CLOEXEC, 0, NOWHERE), 0),
    Case(STANDARD, "socketpair", (UNIX, DGRAM, 0, NOWHERE), errno.EPERM),
    Case(STANDARD, "socketpair", (UNIX, RAW | NONBLOCK_CLOEXEC, 0, NOWHERE), errno.EPERM),
    *(
        Case(STANDARD, "socket", (family, kind, 0), errno.EPERM)
        for family in (INET, INET6)
        for kind in (STREAM, DGRAM)
    ),
    Case(STANDARD, "socket", (INET, STREAM, MPTCP), errno.EPERM),
    Case(STANDARD, "socket", (NETLINK, RAW, 0), errno.EPERM),
    Case(STANDARD, "socket", (PACKET, DGRAM, 0), errno.EAFNOSUPPORT),
    Case(STANDARD, "sendto", (-1, NOWHERE, 0, FASTOPEN, 0, 0), errno.EOPNOTSUPP),
    Case(STANDARD, "sendto", (-1, NOWHERE, 0, FASTOPEN | 0x4000, 0, 0), errno.EOPNOTSUPP),
    Case(STANDARD, "sendmsg", (-1, NOWHERE, FASTOPEN), errno.EOPNOTSUPP),
    Case(STANDARD, "sendmmsg", (-1, NOWHERE, 1, FASTOPEN), errno.EOPNOTSUPP),
    Case(STANDARD, "sendto", (-1, NOWHERE, 0, 0x4000, 0, 0), 0),
    Case(STANDARD, "sendmsg", (-1, NOWHERE, 0x4000), 0),
    Case(STANDARD, "sendmmsg", (-1, NOWHERE, 1, 0x4000), 0),
    Case(STRICT, "sendto", (-1, NOWHERE, 0, FASTOPEN, 0, 0), 0),
    Case(OLD_KERNEL, "open", ("/dev/null", os.O_TRUNC, 0), errno.EPERM),
    Case(OLD_KERNEL, "open", ("/dev/null", os.O_TRUNC | os.O_WRONLY, 0), 0),
    Case(OLD_KERNEL, "open", ("/dev/null", os.O_RDONLY, 0), 0),
    Case(OLD_KERNEL, "openat", (-1, "/dev/null", os.O_TRUNC | os.O_CLOEXEC, 0), errno.EPERM),
    Case(OLD_KERNEL, "openat", (-1, "/dev/null", os.O_TRUNC | os.O_RDWR, 0), 0),
    Case(OLD_KERNEL, "openat", (-1, "/dev/null", os.O_CREAT, 0), 0),
    Case(STANDARD, "openat", (-1, "/dev/null", os.O_TRUNC, 0), 0),
    # With arguments that the kernel refuses, or that change nothing.
    *(
        Case(STRICT, call, (*who, *more), answer)
        for call, before, more in (
            ("prlimit64", (), (99, 0, 0)),
            ("sched_setparam", (), (NOWHERE,)),
            ("sched_setscheduler", (), (99, NOWHERE)),
            ("sched_setattr", (), (NOWHERE, 0)),
            ("sched_setaffinity", (), (8, NOWHERE)),
            ("setpriority", (0,), (0,)),
            ("ioprio_set", (1,), (0xFFFF,)),
        )
        for who, answer in (((*before, 1), errno.EPERM), ((*before, NOBODY), 0))
    ),
    # The kernel looks at the lower half of a command only; of a descriptor that is not there,
    # it says EBADF.
    *(
        Case(options, "fcntl", (-1, (upper << 32) | command, 0), errno.EINVAL)
        for options in (STRICT, STANDARD)
        for command in (F_SETLEASE, F_NOTIFY, F_SETDELEG)
        for upper in (0, 1, ~0)
    ),
    # F_GETFD, F_SETLK, F_OFD_SETLKW, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_GETLEASE, F_DUPFD_CLOEXEC,
    # F_SETPIPE_SZ, F_ADD_SEALS
    *(
        Case(options, "fcntl", (-1, command, NOWHERE), 0)
        for options in (STRICT, STANDARD)
        for command in (1, 6, 38, 8, 10, 15, F_GETLEASE, 1030, 1031, 1033)
    ),
    Case(STRICT, "setpriority", (2, NOBODY, 0), errno.EPERM),
    Case(STRICT, "ioprio_set", (3, NOBODY, 0xFFFF), errno.EPERM),
    # Left open on purpose.
    Case(STRICT, "ptrace", (0x4206, NOBODY, 0, 0), 0),
    Case(STRICT, "process_vm_readv", (NOBODY, 0, 0, 0, 0, 0), 0),
    Case(STRICT, "pidfd_open", (NOBODY, 0), 0),
    Case(STRICT, "shmget", (0, 0, 0), 0),
    Case(STRICT, "setxattr", (NOWHERE, NOWHERE, NOWHERE, 1, 0), 0),
    Case(STRICT, "truncate", (NOWHERE, 0), 0),
    Case(STRICT, "getppid", (), 0),
)

CALLERS: Final = (
    pytest.param(None, id="caller"),
    pytest.param(ORDINARY_UID, id="ordinary", marks=needs(Capability.ROOT)),
)


def program(options: Options) -> str:
    return seccomp.surface_filter(**options._asdict()).hex()


def answers(
    calls: Sequence[tuple[str, Sequence[Word]]],
    *filters: str,
    uid: int | None = None,
    more: Sequence[Sequence[Word]] = (),
) -> list[str]:
    """What the kernel says to *calls*, and to *more* by number, under *filters*."""
    numbered: list[list[Word]] = [[number(name), *arguments] for name, arguments in calls]
    numbered += [list(call) for call in more]
    order = json.dumps({"filters": filters, "uid": uid, "calls": numbered})
    # A session of its own, without a terminal that could be hung up.
    done = subprocess.run(
        [sys.executable, PROBER, order], stdout=subprocess.PIPE, check=True, start_new_session=True
    )
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def number(name: str) -> int:
    found = syscall_numbers.number(name, MACHINE)
    assert found is not None, f"{MACHINE} has no {name}"
    return found


def here(name: str) -> bool:
    return syscall_numbers.number(name, MACHINE) is not None


def refused_always(options: Options) -> dict[str, tuple[Word, ...]]:
    """The calls that these options refuse whatever their arguments."""
    calls = dict(ALWAYS)
    if options.shares_host:
        calls |= ALWAYS_SHARED
    if not options.truncation:
        calls |= ALWAYS_OLD
    return {name: arguments for name, arguments in calls.items() if here(name)}


@pytest.mark.parametrize("uid", CALLERS)
@pytest.mark.parametrize("options", [STRICT, OLD_KERNEL], ids=["strict", "standard"])
def test_what_no_agent_needs_is_refused_with_the_error_of_the_table(
    options: Options, uid: int | None
) -> None:
    """Each call that is always refused gets its row's error, and got another one without."""
    listed = {
        rule.call: errno.errorcode[rule.answer]
        for rule in surface_filter.rules(**options._asdict())
        if not rule.only_if
    }
    calls = list(refused_always(options).items())

    without = answers(calls, uid=uid)
    under = answers(calls, program(options), uid=uid)

    assert {name for name, _ in calls} == {name for name in listed if here(name)}
    wrong = {}
    for (name, _), before, after in zip(calls, without, under, strict=True):
        # ENOSYS: this kernel does not have the call.  To an ordinary user the kernel itself
        # may well say EPERM: it is root from whom the filter takes something.
        nothing_taken = before == after != "ENOSYS" and uid is None and os.geteuid() == 0
        if after != listed[name] or nothing_taken:
            wrong[name] = (before, after, listed[name])
    assert not wrong


@pytest.mark.parametrize("uid", CALLERS)
@pytest.mark.parametrize(
    "options",
    [STRICT, STANDARD, STANDARD_WITH_NETWORK, OLD_KERNEL, NESTED],
    ids=["strict", "standard", "standard, network", "standard, old kernel", "nested"],
)
def test_arguments_decide_where_the_table_says_so(options: Options, uid: int | None) -> None:
    """Calls with one argument are refused, and with another answered as if there were no filter."""
    cases = [case for case in CASES if case.options == options and here(case.call)]
    calls = [(case.call, case.arguments) for case in cases]

    without = answers(calls, uid=uid)
    under = answers(calls, program(options), uid=uid)

    wrong = {}
    for case, before, after in zip(cases, without, under, strict=True):
        expected = errno.errorcode[case.answer] if case.answer else before
        nothing_taken = case.answer and before == after and not case.same and os.geteuid() == 0
        if after != expected or (nothing_taken and uid is None):
            wrong[str(case)] = (before, after, expected)
    assert not wrong


def test_every_row_of_the_table_has_a_case() -> None:
    """No rule is without a call that it refuses here; so the tests above are about all of them."""
    everything = (STRICT, STANDARD, STANDARD_WITH_NETWORK, OLD_KERNEL)
    tried = {(case.call, case.answer) for case in CASES if case.answer}
    tried |= {(name, 0) for options in everything for name in refused_always(options)}

    missing = {
        (rule.call, rule.when)
        for options in everything
        for rule in surface_filter.rules(**options._asdict())
        if here(rule.call) and (rule.call, rule.answer if rule.only_if else 0) not in tried
    }

    assert not missing


def test_another_architecture_s_call_kills() -> None:
    """A call by i386's door, where the numbers mean other calls, ends the process (x86_64)."""
    if MACHINE != "x86_64":
        return
    (without,) = answers([], more=[["int80"]])
    (under,) = answers([], program(STRICT), more=[["int80"]])

    # A kernel without IA32 emulation has no such door: a fault.
    assert without in {"ok", "SIGSEGV"}
    assert under == ("SIGSYS" if without == "ok" else without)


def test_x32_has_no_calls() -> None:
    """The x32 bit in a number makes it a call that does not exist (x86_64)."""
    if MACHINE != "x86_64":
        return
    calls: list[list[Word]] = [[0x4000_0000 | number("getppid")], [0x4000_0000 | 0x3FFF]]

    assert answers([], program(STRICT), more=calls) == ["ENOSYS", "ENOSYS"]


def test_both_filters_stack_in_either_order() -> None:
    """Under surface and keeper filter together each call gets the strictest answer."""
    keeper = seccomp.keeper_filter([os.getpid()], [os.getpgid(0)]).hex()
    surface = program(STRICT)
    calls: list[tuple[str, Sequence[Word]]] = [
        ("kill", (os.getpid(), 0)),  # the keeper filter's
        ("ptrace", (0x4206, NOBODY, 0, 0)),
        ("fcntl", (0, 8, os.getpid())),
        ("io_uring_setup", (0, NOWHERE)),  # the surface's
        ("unshare", (NEW["NEWUSER"],)),
        ("ioctl", (-1, TIOCSTI, NOWHERE)),  # one's
        ("ioctl", (-1, 0x8901, NOWHERE)),  # the other's
        ("perf_event_open", (NOWHERE, NOBODY, -1, -1, 0)),
        ("getppid", ()),
    ]
    expected = ["EPERM"] * 3 + ["ENOSYS"] + ["EPERM"] * 4 + ["ok"]

    assert answers(calls, keeper, surface) == expected
    assert answers(calls, surface, keeper) == expected
    assert answers(calls, keeper)[3:5] != expected[3:5]
    assert answers(calls, surface)[:2] == ["ok", "ESRCH"]
