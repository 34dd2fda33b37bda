"""Hands over, by every socket that it was given, a descriptor whose last close is long work.

VARIANT: ``linger`` (a socket with unsent data that waits 10 s), ``extents`` (an unlinked file of
100,000 pieces), ``memory`` (a memfd of 1 GiB), ``watches`` (epolls with 15,000 each).
"""

import array
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Callable

from _wire import NEIGHBOURS, VARIANT, up

VARIANTS = ("linger", "extents", "memory", "watches")


def linger() -> list[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        peer, _ = server.accept()
    client.setblocking(False)
    try:
        while True:
            client.send(b"x" * 65_536)
    except BlockingIOError:
        pass
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    return [client.detach(), peer.detach()]


def extents() -> list[int]:
    file = os.open("pieces", os.O_RDWR | os.O_CREAT, 0o600)
    os.unlink("pieces")
    for number in range(100_000 // NEIGHBOURS):
        os.pwrite(file, b"x", number * 8192)
    os.fsync(file)
    return [file]


def memory() -> list[int]:
    file = os.memfd_create("memory")
    for _ in range(64 // NEIGHBOURS):
        os.write(file, bytes(1 << 24))
    return [file]


def watches() -> list[int]:
    here, _ = os.pipe()
    copies = [os.dup(here) for _ in range(700)]
    made = []
    for _ in range(200):
        poll = select.epoll()
        for copy in copies:
            poll.register(copy, 0)
        made.append(os.dup(poll.fileno()))
        poll.close()
    return made


def open_sockets() -> list[int]:
    found = []
    for number in range(64):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                found.append(number)
        except OSError:
            continue
    return found


HOW: dict[str, Callable[[], list[int]]] = {
    "linger": linger,
    "extents": extents,
    "memory": memory,
    "watches": watches,
}
sockets = [socket.socket(fileno=os.dup(number)) for number in open_sockets()]
descriptors = HOW[VARIANT]()
up(f"{len(sockets)} sockets")
time.sleep(0.5)  # until all attackers are up: a supervisor that is held up sees none of it
for one in sockets:
    for start in range(0, len(descriptors), 200):
        given = array.array("i", descriptors[start : start + 200])
        try:
            one.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
        except OSError:
            break
for descriptor in descriptors:
    os.close(descriptor)
time.sleep(1000)
