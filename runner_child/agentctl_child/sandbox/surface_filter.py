"""The filter that removes the parts of the kernel that no agent needs.

It lists what is refused, not what is allowed: new calls of a new libc continue to work. A refused
call is a known way out of a sandbox, or needs privileges that a run does not have, or has been a
source of kernel faults out of proportion to its use. EPERM is policy, as an unprivileged caller
would get it anyway. ENOSYS is for calls that libraries can do without. Other errors are those of a
kernel that lacks the feature, so that a fallback is taken.

Left open on purpose:

- ptrace and process_vm_readv/writev. Debuggers, strace and leak sanitizers need them. They reach
  only what the caller may trace: processes of the run's own Landlock domain, pid namespace and uid.
  If keepers are in sight, `keeper_filter` forbids them.
- NETLINK_ROUTE, read-only without CAP_NET_ADMIN. getifaddrs(3) is built on it, and programs as
  ordinary as a Node.js dev server end without it.
"""

import errno
from typing import Final

from agentctl_child.sandbox import bpf
from agentctl_child.sandbox.bpf import Condition, Rule
from agentctl_protocol.vocabulary import Network

_AF_UNIX: Final = 1
_AF_INET: Final = 2
_AF_INET6: Final = 10
_AF_NETLINK: Final = 16
_SOCK_STREAM: Final = 1
_SOCK_DGRAM: Final = 2
_SOCK_TYPE_MASK: Final = 0xF  # less SOCK_NONBLOCK and SOCK_CLOEXEC
_IPPROTO: Final = (0, 6, 17)  # the type's own, TCP, UDP
_NETLINK_ROUTE: Final = 0
_MSG_FASTOPEN: Final = 0x2000_0000

_PR_SET_TIMERSLACK: Final = 29
_CLONE_NEWTIME: Final = 0x80  # in clone(2) these bits are the exit signal
#: NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_CLONE_NEW: Final = 0x0002_0000 | 0x0200_0000 | 0x7C00_0000
#: The query; PER_LINUX, PER_LINUX32, each alone or with UNAME26; ADDR_NO_RANDOMIZE, which
#: debuggers and sanitizers set.
_PERSONALITIES: Final = (0xFFFF_FFFF, 0, 8, 0x2_0000, 0x2_0008, 0x4_0000)
_TERMINAL: Final = (0x5412, 0x541C, 0x5423, 0x541D)
_S_ISUID: Final = 0o4000
_S_ISGID: Final = 0o2000
#: FS_IOC_SETFLAGS, the same for 32 bits, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY.
_FILE_FLAGS: Final = (0x4008_6602, 0x4004_6602, 0x401C_5820, 0x4080_6685)
_IOCTL_TYPE_MASK: Final = 0xFF00
_SUBVOLUMES: Final = (0x9400, 0xBC00)  # btrfs, bcachefs
#: FICLONE, FICLONERANGE, FIDEDUPERANGE: only their numbers are btrfs's, and they need a descriptor
#: for writing.
_CLONES: Final = (0x4004_9409, 0x4020_940D, 0xC018_9436)
#: F_SETLEASE, F_SETDELEG (Linux 6.19), F_NOTIFY.
_HOLDS_ON_FILES: Final = (1024, 1040, 1026)
_O_ACCMODE_AND_TRUNC: Final = 0o3 | 0o1000
_O_RDONLY_AND_TRUNC: Final = 0o1000


def _refuse(answer: int, reason: str, *calls: str) -> tuple[Rule, ...]:
    return tuple(Rule(call, answer, reason) for call in calls)


def _any_bit(argument: int, bits: int) -> Condition:
    return Condition(argument, (0,), mask=bits, negated=True)


_NAMESPACES: Final = (
    Rule(
        "clone",
        errno.EPERM,
        "full powers in a new namespace reach kernel code meant for root",
        "CLONE_NEW*",
        (_any_bit(0, _CLONE_NEW),),
    ),
    Rule(
        "unshare",
        errno.EPERM,
        "full powers in a new namespace reach kernel code meant for root",
        "CLONE_NEW*",
        (_any_bit(0, _CLONE_NEW | _CLONE_NEWTIME),),
    ),
    *_refuse(errno.EPERM, "enters other processes' namespaces", "setns"),
    *_refuse(errno.EPERM, "a way around a root directory", "chroot"),
)
_CLONE3: Final = _refuse(
    errno.ENOSYS, "its flags are behind a pointer; libc falls back to clone", "clone3"
)
_MOUNTS: Final = _refuse(
    errno.EPERM,
    "changes what paths mean",
    "mount",
    "umount2",
    "pivot_root",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "mount_setattr",
)
_MACHINE: Final = (
    *_refuse(errno.EPERM, "loads code into the kernel", "bpf", "init_module", "finit_module"),
    *_refuse(errno.EPERM, "unloads kernel code", "delete_module"),
    *_refuse(errno.EPERM, "loads another kernel", "kexec_load", "kexec_file_load"),
    *_refuse(errno.EPERM, "stops the machine", "reboot"),
    *_refuse(errno.EPERM, "the machine's swap", "swapon", "swapoff"),
    *_refuse(errno.EPERM, "the machine's accounting", "acct", "quotactl", "quotactl_fd"),
    *_refuse(errno.EPERM, "the machine's kernel log", "syslog"),
    *_refuse(
        errno.EPERM,
        "the machine's clock",
        "settimeofday",
        "clock_settime",
        "clock_adjtime",
        "adjtimex",
    ),
    *_refuse(errno.EPERM, "the machine's name", "sethostname", "setdomainname"),
    *_refuse(errno.EPERM, "hangs up a terminal for others", "vhangup"),
    *_refuse(errno.EPERM, "direct access to hardware", "iopl", "ioperm"),
)
_ATTACK_SURFACE: Final = (
    # As a kernel built without it: libuv, liburing and databases have a fallback for both errors.
    *_refuse(
        errno.ENOSYS,
        "does file and socket work that no filter sees",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ),
    *_refuse(errno.EPERM, "lets a process hold up the kernel in a fault", "userfaultfd"),
    *_refuse(errno.EPERM, "measures and samples the kernel", "perf_event_open"),
    *_refuse(
        errno.EPERM,
        "keyrings are the user's, shared by all of its processes",
        "keyctl",
        "add_key",
        "request_key",
    ),
    *_refuse(errno.EPERM, "compares kernel pointers", "kcmp"),
    *_refuse(errno.EPERM, "takes descriptors out of other processes", "pidfd_getfd"),
    *_refuse(errno.EPERM, "advice for other processes' memory", "process_madvise"),
    *_refuse(errno.EPERM, "moves other processes' memory", "migrate_pages", "move_pages"),
    *_refuse(
        errno.EPERM,
        "watches whole file systems, and may hold up who opens a file",
        "fanotify_init",
        "fanotify_mark",
    ),
    *_refuse(errno.EPERM, "opens files without a path", "open_by_handle_at"),
    # As a file system without handles: systemd's code and others have a fallback for that.
    *_refuse(errno.EOPNOTSUPP, "names files without a path", "name_to_handle_at"),
    # As with secretmem.enable=0.
    *_refuse(errno.ENOSYS, "memory that nobody can look into", "memfd_secret"),
    *_refuse(errno.ENOSYS, "16-bit code; as a kernel built without it", "modify_ldt"),
    *_refuse(
        errno.ENOSYS,
        "obsolete; as kernels that no longer have it",
        "lookup_dcookie",
        "nfsservctl",
        "uselib",
        "sysfs",
        "_sysctl",
    ),
    Rule(
        "personality",
        errno.EPERM,
        "READ_IMPLIES_EXEC and others undo protections",
        "other than LINUX, LINUX32, UNAME26, ADDR_NO_RANDOMIZE, query",
        (Condition(0, _PERSONALITIES, negated=True),),
    ),
    # The kernel reads the lower half only, so a command in the upper half is no disguise.
    Rule(
        "ioctl",
        errno.EPERM,
        "types into a terminal, or takes it over",
        "TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS",
        (Condition(1, _TERMINAL),),
    ),
)
#: A process that may read a file can take a lease on it if it has the same uid. Then each open(2)
#: of other processes waits, 45 s if the lease is not given up (/proc/sys/fs/lease-break-time).
#: EINVAL is the error of file systems without leases and of kernels without dnotify. Only file
#: servers use leases, and they work without them; inotify has replaced dnotify. F_GETLEASE and
#: F_SETLK are allowed, and so are F_SETOWN and F_SETSIG: they reach processes that could be
#: signalled anyway, and `keeper_filter` forbids them if keepers are in sight.
_HOLDS: Final = Rule(
    "fcntl",
    errno.EINVAL,
    "keeps others from opening a file, or watches directories for them",
    "F_SETLEASE, F_SETDELEG, F_NOTIFY",
    (Condition(1, _HOLDS_ON_FILES),),
)
#: Pid 1 is the run's init, or the machine's. Init has the run's uid and survives these calls, but
#: it would end without reporting how the agent ended, or would be slow to end.
_INIT: Final = (
    Rule(
        "prlimit64",
        errno.EPERM,
        "without descriptors or time, init cannot tell how the agent ended",
        "pid 1",
        (Condition(0, (1,)),),
    ),
    *(
        Rule(call, errno.EPERM, "init must run to end a run", "pid 1", (Condition(0, (1,)),))
        for call in ("sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity")
    ),
    *(
        rule
        for call, process, user in (("setpriority", 0, 2), ("ioprio_set", 1, 3))
        for rule in (
            Rule(
                call,
                errno.EPERM,
                "init must run to end a run",
                "pid 1",
                (Condition(0, (process,)), Condition(1, (1,))),
            ),
            Rule(
                call,
                errno.EPERM,
                "init must run to end a run, and is of one uid with it",
                "all processes of a uid",
                (Condition(0, (user,)),),
            ),
        )
    ),
)
#: Many small sleepers wake up together, so that they do not starve their keepers.
_TIMER_SLACK: Final = Rule(
    "prctl",
    errno.EPERM,
    "many that wake up often, and each alone, starve everybody else",
    "PR_SET_TIMERSLACK",
    (Condition(0, (_PR_SET_TIMERSLACK,)),),
)
#: Files that a run makes in its workspace belong to the caller on the host, who may be root;
#: nosuid on the run's own mount has no effect there. open(2) can set these bits, too, but that is
#: harmless: the file is empty, and a write without privileges removes the bits.
_SETUID_FILES: Final = tuple(
    Rule(
        call,
        errno.EPERM,
        "who executes the file on the host gets the caller's rights",
        "S_ISUID, S_ISGID",
        (_any_bit(argument, _S_ISUID | _S_ISGID),),
    )
    for call, argument in (
        ("chmod", 1),
        ("fchmod", 1),
        ("fchmodat", 2),
        ("fchmodat2", 2),
        ("mknod", 1),
        ("mknodat", 2),
    )
)
_PAIRS: Final = Rule(
    "socketpair",
    errno.EOPNOTSUPP,
    "only AF_UNIX has pairs that are in use",
    "other than AF_UNIX",
    (Condition(0, (_AF_UNIX,), negated=True),),
)
_NO_UNIX: Final = (
    Rule(
        "socket",
        errno.EPERM,
        "sockets in files are doors to the host's services",
        "AF_UNIX",
        (Condition(0, (_AF_UNIX,)),),
    ),
    # A socket of a stream pair stays connected for good.
    Rule(
        "socketpair",
        errno.EPERM,
        "a datagram socket can send to any address, though it is one of a pair",
        "SOCK_DGRAM, SOCK_RAW",
        (Condition(1, (_SOCK_DGRAM, 3), mask=_SOCK_TYPE_MASK),),
    ),
)
_NO_INTERNET: Final = (
    Rule(
        "socket",
        errno.EPERM,
        "the network is off",
        "AF_INET, AF_INET6, AF_NETLINK",
        (Condition(0, (_AF_INET, _AF_INET6, _AF_NETLINK)),),
    ),
    # As if net.ipv4.tcp_fastopen is off. For sockets that came by another way.
    *(
        Rule(
            call,
            errno.EOPNOTSUPP,
            "connects without connect(2)",
            "MSG_FASTOPEN",
            (_any_bit(argument, _MSG_FASTOPEN),),
        )
        for call, argument in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3))
    ),
)
_FAMILIES: Final = Rule(
    "socket",
    errno.EAFNOSUPPORT,
    "families that are not namespaced, or little looked after; as a kernel without them",
    "other than AF_UNIX, AF_INET, AF_INET6, AF_NETLINK",
    (Condition(0, (_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK), negated=True),),
)
_INTERNET: Final = (
    Rule(
        "socket",
        errno.EPERM,
        "raw packets",
        "AF_INET, AF_INET6: other than SOCK_STREAM, SOCK_DGRAM",
        (
            Condition(0, (_AF_INET, _AF_INET6)),
            Condition(1, (_SOCK_STREAM, _SOCK_DGRAM), mask=_SOCK_TYPE_MASK, negated=True),
        ),
    ),
    # Go asks for MPTCP first, and uses TCP on this error.
    Rule(
        "socket",
        errno.EPROTONOSUPPORT,
        "MPTCP, SCTP, SMC, UDP-Lite, ICMP: not what rules for TCP and UDP cover",
        "AF_INET, AF_INET6: protocol other than TCP, UDP",
        (Condition(0, (_AF_INET, _AF_INET6)), Condition(2, _IPPROTO, negated=True)),
    ),
    Rule(
        "socket",
        errno.EPROTONOSUPPORT,
        "netfilter, audit, crypto and the like",
        "AF_NETLINK: other than NETLINK_ROUTE",
        (Condition(0, (_AF_NETLINK,)), Condition(2, (_NETLINK_ROUTE,), negated=True)),
    ),
)
#: Namespaces separate these at strict; at standard only this filter does.
_SHARED_HOST: Final = (
    # As a kernel built without them.
    *_refuse(
        errno.ENOSYS,
        "shared memory, semaphores and messages of the user's other programs",
        "shmget",
        "shmat",
        "shmctl",
        "semget",
        "semop",
        "semtimedop",
        "semctl",
        "msgget",
        "msgsnd",
        "msgrcv",
        "msgctl",
        "mq_open",
        "mq_unlink",
    ),
    # As a file system without them. Landlock does not check metadata.
    *_refuse(
        errno.EOPNOTSUPP,
        "writes attributes of files anywhere",
        "setxattr",
        "lsetxattr",
        "fsetxattr",
        "setxattrat",
        "removexattr",
        "lremovexattr",
        "fremovexattr",
        "removexattrat",
        "file_setattr",
    ),
    # The same by a descriptor for reading. ENOTTY: as a file system without them.
    Rule(
        "ioctl",
        errno.ENOTTY,
        "changes files that may only be read, for good in the case of verity",
        "FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY",
        (Condition(1, _FILE_FLAGS),),
    ),
    Rule(
        "ioctl",
        errno.ENOTTY,
        "makes and removes subvolumes in directories that may only be read",
        "btrfs's and bcachefs's own, but not FICLONE, FICLONERANGE, FIDEDUPERANGE",
        (
            Condition(1, _SUBVOLUMES, mask=_IOCTL_TYPE_MASK),
            Condition(1, _CLONES, negated=True),
        ),
    ),
)
_TRUNCATION: Final = (
    *_refuse(errno.EPERM, "empties files anywhere: this Landlock lets it", "truncate"),
    Rule(
        "open",
        errno.EPERM,
        "empties files that may only be read: this Landlock lets it",
        "O_RDONLY with O_TRUNC",
        (Condition(1, (_O_RDONLY_AND_TRUNC,), mask=_O_ACCMODE_AND_TRUNC),),
    ),
    Rule(
        "openat",
        errno.EPERM,
        "empties files that may only be read: this Landlock lets it",
        "O_RDONLY with O_TRUNC",
        (Condition(2, (_O_RDONLY_AND_TRUNC,), mask=_O_ACCMODE_AND_TRUNC),),
    ),
    *_refuse(errno.ENOSYS, "its flags are behind a pointer; openat does the same", "openat2"),
)


def surface_filter(
    *,
    network: Network,
    unix_sockets: bool,
    shares_host: bool,
    user_namespaces: bool = False,
    truncation: bool = True,
) -> bytes:
    """Return the program for an agent at strict or standard; parameters as in `rules`."""
    return bpf.assemble(
        rules(
            network=network,
            unix_sockets=unix_sockets,
            shares_host=shares_host,
            user_namespaces=user_namespaces,
            truncation=truncation,
        )
    )


def rules(
    *,
    network: Network,
    unix_sockets: bool,
    shares_host: bool,
    user_namespaces: bool = False,
    truncation: bool = True,
) -> tuple[Rule, ...]:
    """Return what is refused, with which error and why.

    ``network``: NONE leaves no internet socket at all. If an empty network namespace is the
    barrier, as at strict, pass HOST: what is in there is the run's own, its loopback too.
    ``unix_sockets``: True if AF_UNIX sockets may be made, beside connected pairs. Pass False if
    the host's socket files can be named and Landlock cannot confine them (ABI < 9).
    ``shares_host``: there is no private root and no IPC namespace (standard). ``user_namespaces``:
    new namespaces may be made, and entered. ``truncation``: False if `landlock.restrict` does not
    cover truncate(2) (ABI < 3).
    """
    rows = [*_CLONE3, *_MOUNTS, *_MACHINE, *_ATTACK_SURFACE, *_INIT, _TIMER_SLACK, *_SETUID_FILES]
    rows += [_HOLDS, _PAIRS, _FAMILIES]
    if not user_namespaces:
        rows += _NAMESPACES
    if not unix_sockets:
        rows += _NO_UNIX
    rows += _NO_INTERNET if network is Network.NONE else _INTERNET
    if shares_host:
        rows += _SHARED_HOST
    if not truncation:
        rows += _TRUNCATION
    return tuple(rows)
