"""IPC objects of the host for attacks: System V's and POSIX's, each with the secret in it."""

import contextlib
import ctypes
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from agentctl_testkit.attack_plant import Plant

_IPC_CREAT: Final = 0o1000
_IPC_EXCL: Final = 0o2000
_IPC_RMID: Final = 0
_SETVAL: Final = 16
_FOR_ALL: Final = 0o666
_SIZE: Final = 4096
_VALUE: Final = 4711
_SHARED_MEMORY: Final = Path("/dev/shm")

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p


def plant_ipc_objects(plant: Plant) -> Mapping[str, Any]:
    """Make one of each kind, which everybody may read.

    Facts: ``ipc_key`` of System V's, ``ipc_name`` of POSIX's, ``ipc_value`` of the semaphore.
    """
    # Also by who is not root, so all are of the same uid's making as the attack's.
    key = 0x0A77_0000 + secrets.randbelow(1 << 15) * 2
    name = f"agentctl-attack-{secrets.token_hex(8)}"
    text = plant.token.encode()
    old_mask = os.umask(0)
    try:
        _share_memory(plant, key, text)
        _leave_message(plant, key, text)
        _leave_semaphore(plant, key)
        _leave_posix_message(plant, name, text)
        path = _SHARED_MEMORY / name
        path.write_bytes(text)
        plant.undo.callback(path.unlink)
    finally:
        os.umask(old_mask)
    return {"ipc_key": key, "ipc_name": name, "ipc_value": _VALUE}


def left_behind(plant: Plant) -> list[str]:
    """What an attack left on the host, one text each; it is removed."""
    key, name = plant.facts["ipc_key"] + 1, f"{plant.facts['ipc_name']}-left"
    return [f"{what} was left on the host" for what in _removed(key, name)]


def _removed(key: int, name: str) -> Iterator[str]:
    memory = _libc.shmget(key, 0, 0)
    if memory >= 0:
        _libc.shmctl(memory, _IPC_RMID, None)
        yield "shared memory"
    queue = _libc.msgget(key, 0)
    if queue >= 0:
        _libc.msgctl(queue, _IPC_RMID, None)
        yield "a message queue"
    if _libc.mq_unlink(f"/{name}".encode()) == 0:
        yield "a POSIX message queue"
    with contextlib.suppress(FileNotFoundError):
        (_SHARED_MEMORY / name).unlink()
        yield "a file in /dev/shm"


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _share_memory(plant: Plant, key: int, text: bytes) -> None:
    memory = _checked(_libc.shmget(key, _SIZE, _IPC_CREAT | _IPC_EXCL | _FOR_ALL))
    plant.undo.callback(_libc.shmctl, memory, _IPC_RMID, None)
    address = _libc.shmat(memory, None, 0)
    ctypes.memmove(address, text, len(text))
    _checked(_libc.shmdt(ctypes.c_void_p(address)))


def _leave_message(plant: Plant, key: int, text: bytes) -> None:
    queue = _checked(_libc.msgget(key, _IPC_CREAT | _IPC_EXCL | _FOR_ALL))
    plant.undo.callback(_libc.msgctl, queue, _IPC_RMID, None)
    message = ctypes.create_string_buffer(b"\1".ljust(8, b"\0") + text)
    _checked(_libc.msgsnd(queue, message, ctypes.c_size_t(len(text)), 0))


def _leave_semaphore(plant: Plant, key: int) -> None:
    semaphore = _checked(_libc.semget(key, 1, _IPC_CREAT | _IPC_EXCL | _FOR_ALL))
    plant.undo.callback(_libc.semctl, semaphore, 0, _IPC_RMID)
    _checked(_libc.semctl(semaphore, 0, _SETVAL, _VALUE))


def _leave_posix_message(plant: Plant, name: str, text: bytes) -> None:
    path = f"/{name}".encode()
    # mq_flags, mq_maxmsg, mq_msgsize, mq_curmsgs, and what is reserved
    attributes = (ctypes.c_long * 8)(0, 1, 256)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    queue = _checked(_libc.mq_open(path, flags, _FOR_ALL, ctypes.byref(attributes)))
    plant.undo.callback(_libc.mq_unlink, path)
    plant.undo.callback(_libc.mq_close, queue)
    _checked(_libc.mq_send(queue, text, ctypes.c_size_t(len(text)), 0))
