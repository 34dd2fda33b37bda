"""Hands descriptors to whoever is at the other end of any descriptor that it holds.

``each``: tries it with all of them, and prints how each answered, as JSON.
``linger SECONDS``: gives a TCP connection whose last close takes so long, then waits.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys
import time

_RIGHTS = socket.SOL_SOCKET
_libc = ctypes.CDLL(None, use_errno=True)


def give(number: int, *given: int) -> str:
    """Send *given* by SCM_RIGHTS on *number*; the name of the error, or nothing.

    Not by `socket`, which looks whether it is a socket and does not try.
    """
    data = ctypes.create_string_buffer(1)
    vector = ctypes.create_string_buffer(struct.pack("PL", ctypes.addressof(data), 1))
    descriptors = struct.pack(f"{len(given)}i", *given)
    header = struct.pack("Lii", socket.CMSG_LEN(len(descriptors)), _RIGHTS, socket.SCM_RIGHTS)
    control = ctypes.create_string_buffer((header + descriptors).ljust(_room(descriptors), b"\0"))
    message = struct.pack(
        "PIPLPLi", 0, 0, ctypes.addressof(vector), 1,
        ctypes.addressof(control), _room(descriptors), 0,
    )  # fmt: skip
    if _libc.sendmsg(number, message, 0) == -1:
        return errno.errorcode[ctypes.get_errno()]
    return ""


def _room(descriptors: bytes) -> int:
    return socket.CMSG_SPACE(len(descriptors))


def held() -> list[int]:
    """The descriptors of this process but the one that lists them."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def each() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    answers = {number: give(number, null) for number in held() if number != null}
    print(json.dumps(answers), flush=True)


def linger() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(65_536))
    except BlockingIOError:
        pass
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, int(sys.argv[2])))
    numbers = [one.fileno(), other.fileno()]
    answers = [give(number, *numbers) for number in held() if number not in numbers]
    for left in numbers if "" in answers else ():
        os.close(left)  # the last close is the receiver's now
    print("gave", answers.count(""), flush=True)
    time.sleep(1000)


if __name__ == "__main__":
    {"each": each, "linger": linger}[sys.argv[1]]()
