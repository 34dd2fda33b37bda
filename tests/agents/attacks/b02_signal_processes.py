"""Signal a process of the host's by pid, thread, group, pidfd or SIGIO: none arrives."""

import fcntl
import os
import signal
import struct
import time
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, syscall

VICTIM = FACTS["victim_pid"]
STOP = int(signal.SIGSTOP)
_SYS_TGKILL = 234
_SYS_TKILL = 200
_SYS_RT_SIGQUEUEINFO = 129
_F_SETSIG = 10
_F_SETOWN_EX = 15
_F_OWNER_PID = 1


def stopped(send: Callable[[], object]) -> None:
    """Send SIGSTOP, look whether it arrived, and undo it."""
    send()
    until = time.monotonic() + 1
    while time.monotonic() < until:
        with open(f"/proc/{VICTIM}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                os.kill(VICTIM, signal.SIGCONT)
                return
        time.sleep(0.001)
    raise Blocked("it did not stop")


def by_pidfd() -> None:
    signal.pidfd_send_signal(os.pidfd_open(VICTIM), signal.SIGSTOP)


def by_proc() -> None:
    # The directory of a process is a pidfd, too.
    descriptor = os.open(f"/proc/{VICTIM}", os.O_RDONLY | os.O_DIRECTORY)
    signal.pidfd_send_signal(descriptor, signal.SIGSTOP)


def queued() -> None:
    information = struct.pack("iii", signal.SIGSTOP, 0, -1) + bytes(116)
    syscall(_SYS_RT_SIGQUEUEINFO, VICTIM, STOP, information)


def by_descriptor_owner(command: int, owner: object) -> None:
    ours, theirs = os.pipe()
    fcntl.fcntl(ours, command, owner)  # type: ignore[call-overload]
    fcntl.fcntl(ours, _F_SETSIG, STOP)
    fcntl.fcntl(ours, fcntl.F_SETFL, fcntl.fcntl(ours, fcntl.F_GETFL) | os.O_ASYNC)
    os.write(theirs, b".")


attempt(
    {
        "kill": lambda: stopped(lambda: os.kill(VICTIM, signal.SIGSTOP)),
        "killpg": lambda: stopped(lambda: os.killpg(VICTIM, signal.SIGSTOP)),
        "tkill": lambda: stopped(lambda: syscall(_SYS_TKILL, VICTIM, STOP)),
        "tgkill": lambda: stopped(lambda: syscall(_SYS_TGKILL, VICTIM, VICTIM, STOP)),
        "rt_sigqueueinfo": lambda: stopped(queued),
        "pidfd": lambda: stopped(by_pidfd),
        "pidfd of /proc": lambda: stopped(by_proc),
        "F_SETOWN": lambda: stopped(lambda: by_descriptor_owner(fcntl.F_SETOWN, VICTIM)),
        "F_SETOWN, group": lambda: stopped(lambda: by_descriptor_owner(fcntl.F_SETOWN, -VICTIM)),
        "F_SETOWN_EX": lambda: stopped(
            lambda: by_descriptor_owner(_F_SETOWN_EX, struct.pack("ii", _F_OWNER_PID, VICTIM))
        ),
        "SIGKILL": lambda: os.kill(VICTIM, signal.SIGKILL),
    }
)
