"""Meet another run, or the host, in shared memory or a message queue: each has its own.

What a run leaves there would also outlive it, and hold memory that nobody frees.
"""

import contextlib
import ctypes
import os
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, checked, libc

_IPC_CREAT, _IPC_NOWAIT, _SHM_RDONLY = 0o1000, 0o4000, 0o10000
_KEY = FACTS["ipc_key"]
_ITS_OWN_KEY = _KEY + 1
_NAME = FACTS["ipc_name"]
_SIZE = 4096

libc.shmat.restype = ctypes.c_void_p


def _what_lies_there(read: Callable[[], str]) -> Callable[[], str]:
    def found() -> str:
        text = read()
        if not text.startswith("planted"):
            raise Blocked(f"something else: {text[:40]!r}")
        return text

    return found


def _shared_memory() -> str:
    address = libc.shmat(checked(libc.shmget(_KEY, 0, 0)), None, _SHM_RDONLY)
    if address in {None, ctypes.c_void_p(-1).value}:
        raise OSError(ctypes.get_errno(), "")
    return ctypes.string_at(address).decode()


def _message() -> str:
    # A type, then the text.
    message = ctypes.create_string_buffer(8 + 256)
    checked(libc.msgrcv(checked(libc.msgget(_KEY, 0)), message, 256, 0, _IPC_NOWAIT))
    return message.raw[8:].rstrip(b"\0").decode()


def _posix_message() -> str:
    # Older C libraries have it in librt.
    queue = checked(libc.mq_open(f"/{_NAME}".encode(), os.O_RDONLY | os.O_NONBLOCK))
    message = ctypes.create_string_buffer(256)
    size = checked(libc.mq_receive(queue, message, 256, None))
    return message.raw[:size].decode()


def _posix_memory() -> str:
    with open(f"/dev/shm/{_NAME}") as file:
        return file.read()


def semaphore() -> str:
    """Its value is a message, too."""
    value = checked(libc.semctl(checked(libc.semget(_KEY, 0, 0)), 0, 12))  # GETVAL
    if value != FACTS["ipc_value"]:
        raise Blocked(f"another: {value}")
    return f"its value is {value}"


def leave() -> None:
    """Make what only the host's check sees: whether it is there afterwards."""
    libc.shmget(_ITS_OWN_KEY, _SIZE, _IPC_CREAT | 0o666)
    libc.msgget(_ITS_OWN_KEY, _IPC_CREAT | 0o666)
    libc.mq_open(f"/{_NAME}-left".encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
    with contextlib.suppress(OSError), open(f"/dev/shm/{_NAME}-left", "w") as file:
        file.write("left")


leave()
attempt(
    {
        "shared_memory": _what_lies_there(_shared_memory),
        "message": _what_lies_there(_message),
        "posix_message": _what_lies_there(_posix_message),
        "posix_memory": _what_lies_there(_posix_memory),
        "semaphore": semaphore,
    }
)
