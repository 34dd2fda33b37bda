"""Uses up what the kernel counts for each user, so that none is left for others of that user.

VARIANT: ``watches`` (of epoll), ``in_flight`` (descriptors in sockets), ``pipes`` (their pages),
``inotify`` (instances, then watches), ``keys``, ``signals`` (queued ones), ``timers``,
``locked`` (memory).
"""

import array
import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable

from _wire import VARIANT, up

KIND = "user"
VARIANTS = ("watches", "in_flight", "pipes", "inotify", "keys", "signals", "timers", "locked")
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_ADD_KEY = 248 if os.uname().machine == "x86_64" else 217
SECONDS = 20

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept: list[object] = []


def watches() -> None:
    here, _ = os.pipe()
    copies = [os.dup(here) for _ in range(hard - 700)]
    while True:
        poll = select.epoll()
        kept.append(poll)
        for copy in copies:
            poll.register(copy, 0)


def in_flight() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 250))]
    while True:
        one, other = socket.socketpair()
        kept.append((one, other))
        one.setblocking(False)
        try:
            while True:
                one.sendmsg([b"x"], given)
        except BlockingIOError:
            pass


def pipes() -> None:
    while True:
        _, there = os.pipe()
        for size in (1 << 20, 1 << 18, 1 << 16):
            try:
                fcntl.fcntl(there, fcntl.F_SETPIPE_SZ, size)
                break
            except OSError:
                continue
        os.set_blocking(there, False)
        os.write(there, b"x" * (1 << 20))


def inotify() -> None:
    while (instance := LIBC.inotify_init1(0)) >= 0:
        kept.append(instance)
    for number in range(1 << 20):
        os.mkdir(f"watched{number}")
        if LIBC.inotify_add_watch(kept[0], f"watched{number}".encode(), 2) < 0:
            return


def keys() -> None:
    number = 0
    text = b"x" * 1000
    while LIBC.syscall(SYS_ADD_KEY, b"user", b"k%d" % number, text, len(text), -2) >= 0:
        number += 1


def signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    while LIBC.sigqueue(os.getpid(), signal.SIGRTMIN, 0) == 0:
        pass


def timers() -> None:
    timer = ctypes.c_void_p()
    while LIBC.timer_create(time.CLOCK_MONOTONIC, None, ctypes.byref(timer)) == 0:
        pass


def locked() -> None:
    while True:
        area = mmap.mmap(-1, 1 << 16)
        kept.append(area)
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(1 << 16)) != 0:
            return


HOW: dict[str, Callable[[], None]] = {
    "watches": watches,
    "in_flight": in_flight,
    "pipes": pipes,
    "inotify": inotify,
    "keys": keys,
    "signals": signals,
    "timers": timers,
    "locked": locked,
}
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(OSError("long enough")))
signal.alarm(SECONDS)
try:
    HOW[VARIANT]()
    said = "used up"
except OSError as error:
    said = str(error)
signal.alarm(0)
up(said)
time.sleep(1000)
