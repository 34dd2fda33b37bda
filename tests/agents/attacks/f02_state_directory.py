"""Read or forge the logs of runs, write an intent, call the supervisor: not there, or refused."""

import fcntl
import glob
import os
import socket

from attempt import FACTS, Blocked, attempt

HOME = FACTS["home"]
RUN = FACTS["run"]


def read(name: str) -> str:
    with open(f"{RUN}/{name}", "rb") as file:
        return repr(file.read(64))


def append(name: str) -> None:
    os.close(os.open(f"{RUN}/{name}", os.O_WRONLY | os.O_APPEND))


def claim() -> None:
    os.close(os.open(f"{RUN}/intent.forged", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(f"{RUN}/intent.forged")


def lock() -> None:
    fcntl.flock(os.open(f"{RUN}/spec", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


def call() -> str:
    found = glob.glob(f"{HOME}/run/*.sock")
    if not found:
        raise Blocked("no socket to be seen")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(found[0])
    return found[0]


def call_by_name() -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(FACTS["control_socket"])


attempt(
    {
        "list": lambda: " ".join(os.listdir(f"{HOME}/runs"))[:100],
        "spec": lambda: read("spec"),
        "log": lambda: read("00000001.log"),
        "log, writing": lambda: append("00000001.log"),
        "intent": claim,
        "lock": lock,
        "find the socket": call,
        "call": call_by_name,
    }
)
