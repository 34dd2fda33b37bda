"""The kernel's counters that more than one run shares.

For each counter the table says who shares it, what a run may take of it, and what works without.
The table is the documentation (``docs/shared-counters.md`` is generated from it). It is also the
source of the words that an error uses for a counter that is used up.
"""

import errno
from typing import Final

import msgspec


class SharedCounter(msgspec.Struct, frozen=True):
    """A counter of the kernel.

    ``limit``: the setting that bounds it. ``user``: the party for which an ordinary user's run
    counts. ``root``: the same for a run of root at strict and standard, which has a uid of its
    own. ``share``: what a run may take of it. ``empty``: what still works when it is used up, and
    how. ``errors``: the kernel's errors then.
    """

    name: str
    limit: str
    user: str
    root: str
    share: str
    empty: str
    errors: tuple[int, ...] = ()


_REFUSED: Final = "nothing: the calls are refused by seccomp"
_NOT_NEEDED: Final = "nothing of ours needs it"
_USER: Final = "its user"
_OWN: Final = "itself"
_ALL: Final = "the machine"

TASKS_OF_A_USER: Final = SharedCounter(
    "processes and threads of a user",
    "ulimit -u",
    f"{_USER}, and itself (Linux 5.14)",
    _OWN,
    "4,096. All runs of a user together leave it an eighth of its limit, at most 512: the limit"
    " is lowered before the run's user namespace is made, which keeps it",
    "runs go on and can be ended: for that nothing is forked, and the threads are there. A new"
    " run is refused",
    (errno.EAGAIN,),
)
ALL_TASKS: Final = SharedCounter(
    "processes and threads of the machine, or of a container",
    "kernel.pid_max, kernel.threads-max, pids.max of a control group",
    _ALL,
    _ALL,
    "4,096, or what is really left when it starts, less an eighth (at most 512). An ordinary"
    " user's runs leave that together; of root's each gets at most half of what those before it"
    " may not take, down to 256. At basic, root's are not bounded",
    "as above",
    (errno.EAGAIN,),
)
EPOLL_WATCHES: Final = SharedCounter(
    "epoll watches",
    "fs.epoll.max_user_watches",
    _USER,
    _OWN,
    "all: no limit of a process bounds them (each of its epoll descriptors may watch all of its"
    " descriptors)",
    "a supervisor that is there waits by poll(2), on a thread that it started with: runs start,"
    " are stopped, and clients are answered. A new supervisor cannot start",
)
IN_FLIGHT: Final = SharedCounter(
    "descriptors in flight (SCM_RIGHTS)",
    "ulimit -n of whoever sends",
    _USER,
    _OWN,
    "as many as its own limit on open files, which is a quarter lower than ours",
    "keepers and supervisors may send up to the hard limit, and so still can. If something else"
    " takes that, a new run is refused",
    (errno.ETOOMANYREFS,),
)
OPEN_FILES: Final = SharedCounter(
    "open files of a process",
    "ulimit -n",
    "each process",
    "each process",
    "three quarters of the hard limit, at most 65,536, in each process; its soft limit is that of"
    " whoever started it",
    "a new run is refused while a supervisor still has descriptors for those that it has",
    (errno.EMFILE,),
)
ALL_FILES: Final = SharedCounter(
    "open files of the machine",
    "fs.file-max",
    _ALL,
    _ALL,
    "65,536 for each of its processes; where it has no pid namespace, half of the machine's for"
    " all of them",
    "runs can be ended, for which nothing is opened. A new run is refused, and an ordinary"
    " user's shell may start no `agentctl stop`; root is not held to the limit",
    (errno.ENFILE,),
)
PIPE_PAGES: Final = SharedCounter(
    "pages in pipes",
    "fs.pipe-user-pages-soft, fs.pipe-user-pages-hard",
    _USER,
    _OWN,
    "all",
    "the pipes of a new run hold two pages: it is slower to talk to. Where the hard limit is"
    " set, a new run is refused",
    (errno.ENFILE,),
)
INOTIFY: Final = SharedCounter(
    "inotify instances and watches",
    "fs.inotify.max_user_instances, fs.inotify.max_user_watches",
    f"{_USER}, and itself",
    _OWN,
    "half of the user's, set as user.max_inotify_* of its user namespace where /proc/sys can be"
    " written to",
    "`agentctl logs -f` and `wait` look at intervals",
    (),
)
COUNTERS: Final = (
    TASKS_OF_A_USER,
    ALL_TASKS,
    EPOLL_WATCHES,
    IN_FLIGHT,
    OPEN_FILES,
    ALL_FILES,
    PIPE_PAGES,
    INOTIFY,
    SharedCounter(
        "queued signals and POSIX timers",
        "ulimit -i",
        f"{_USER}, and itself (Linux 5.14)",
        _OWN,
        "4,096; all runs of a user together three quarters of its limit",
        f"{_NOT_NEEDED}: kill(2) and pidfd_send_signal(2) go without",
    ),
    SharedCounter(
        "bytes in POSIX message queues",
        "ulimit -q",
        f"{_USER}, and itself (Linux 5.14)",
        _OWN,
        "819,200; all runs of a user together three quarters of its limit; at standard nothing",
        _NOT_NEEDED,
    ),
    SharedCounter(
        "locked memory",
        "ulimit -l",
        f"{_USER}, and itself (Linux 5.14)",
        _OWN,
        "8 MiB",
        _NOT_NEEDED,
    ),
    SharedCounter(
        "keys and keyrings",
        "kernel.keys.maxkeys, kernel.keys.maxbytes",
        _USER,
        _OWN,
        _REFUSED,
        _NOT_NEEDED,
    ),
    SharedCounter(
        "fanotify groups and marks",
        "fs.fanotify.max_user_groups, fs.fanotify.max_user_marks",
        f"{_USER}, and itself",
        _OWN,
        _REFUSED,
        _NOT_NEEDED,
    ),
    SharedCounter(
        "memory of io_uring, BPF and perf",
        "ulimit -l, kernel.perf_event_mlock_kb",
        _USER,
        _OWN,
        _REFUSED,
        _NOT_NEEDED,
    ),
    SharedCounter(
        "namespaces",
        "user.max_*_namespaces",
        f"{_USER}, and itself",
        "root",
        "its own of each kind; more are refused by seccomp",
        "a new run is refused",
    ),
    SharedCounter(
        "pseudo-terminals",
        "kernel.pty.max, less kernel.pty.reserve",
        _ALL,
        _ALL,
        "all but the reserve, which the kernel keeps for the machine's own /dev/pts; at standard"
        " nothing",
        _NOT_NEEDED,
    ),
    SharedCounter(
        "memory",
        "the machine's, or memory.max of a control group",
        _ALL,
        _ALL,
        "all, until the kernel kills somebody: then runs come first (oom_score_adj 1000), and"
        " as root keepers and supervisors last (-900)",
        "whoever is killed is told so: the report says that the kernel killed for want of memory"
        " while the run was there",
        (errno.ENOMEM,),
    ),
)


def named(counter: SharedCounter) -> str:
    """Return the counter's name for an error.

    Example: ``epoll watches (fs.epoll.max_user_watches)``.
    """
    return f"{counter.name} ({counter.limit})"


def used_up(number: int | None) -> str:
    """Return what is used up if the kernel answers *number*; empty if it means no counter."""
    return " or ".join(named(counter) for counter in COUNTERS if number in counter.errors)
