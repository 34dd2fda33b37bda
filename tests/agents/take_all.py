"""Takes as much as it can get of something that the kernel counts for a user, and keeps it.

``take_all.py KIND [MOST]`` prints how much it got and why no more, and waits to be killed; with
MOST it takes no more than that and leaves.
"""

import array
import ctypes
import errno
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator

libc = ctypes.CDLL(None, use_errno=True)
KEPT: list[object] = []
CHILDREN: list[int] = []


def descriptors_in_flight() -> Iterator[int]:
    null = os.open(os.devnull, os.O_RDONLY)
    while True:
        ours, theirs = socket.socketpair()
        KEPT.extend((ours, theirs))
        ours.setblocking(False)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 50))
        try:
            while True:
                ours.sendmsg([b"x"], [rights])
                yield 50
        except BlockingIOError:
            pass


def inotify_instances() -> Iterator[int]:
    while True:
        if libc.inotify_init1(0) < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        yield 1


def queued_signals() -> Iterator[int]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    while True:
        if libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None):
            raise OSError(ctypes.get_errno(), "sigqueue")
        yield 1


def pipe_pages() -> Iterator[int]:
    while True:
        reading, writing = os.pipe()
        KEPT.append((reading, writing))
        os.set_blocking(writing, False)
        size = os.write(writing, b"x" * 65536)
        if size < 65536:
            raise OSError(errno.ENOSPC, f"a pipe that holds {size} bytes")
        yield 16


def processes() -> Iterator[int]:
    while True:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        CHILDREN.append(pid)
        yield 1


def memory() -> Iterator[int]:
    while True:
        KEPT.append(bytearray(os.urandom(1 << 20)))
        yield 1


KINDS: dict[str, Callable[[], Iterator[int]]] = {
    "descriptors in flight": descriptors_in_flight,
    "inotify instances": inotify_instances,
    "queued signals": queued_signals,
    "pipe pages": pipe_pages,
    "processes": processes,
    "memory": memory,
}


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = int(sys.argv[2]) if len(sys.argv) > 2 else None
    taken, why = 0, "enough"
    try:
        for count in KINDS[sys.argv[1]]():
            taken += count
            if most is not None and taken >= most:
                break
    except OSError as error:
        why = str(error)
    print(f"took {taken}: {why}", flush=True)
    if most is None:
        time.sleep(1000)
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
