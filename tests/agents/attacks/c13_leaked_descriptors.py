"""Use what the launcher left open: only 0, 1, 2 and the channel are, and the cwd is inside.

A directory left open leads back to the host (CVE-2024-21626).
"""

import errno
import os
import socket
import stat

from attempt import FACTS, Blocked, attempt


def _leak() -> None:
    """What a careless launcher would do."""
    if FACTS["level"] == "outside":
        os.set_inheritable(os.open("/", os.O_PATH | os.O_DIRECTORY), True)


def _open_numbers() -> list[int]:
    # Not by /proc alone: what is asked is whether a number works.
    numbers = []
    for number in range(3, 4096):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
        else:
            numbers.append(number)
    return numbers


#: Those that this program was started with.
GIVEN = _open_numbers()


#: Its two ends of the channel.
CHANNEL = [int(number) for number in os.environ.get("AGENTCTL_CHANNEL_FD", "").split(",") if number]


def anything_open() -> str:
    _leak()
    given = GIVEN if FACTS["level"] != "outside" else _open_numbers()
    found = [
        f"{number}: {_what(number)}"
        for number in given
        if not (number in CHANNEL and stat.S_ISFIFO(os.fstat(number).st_mode))
    ]
    if not found:
        raise Blocked(f"nothing but the channel among {given}")
    return ", ".join(found)


def _what(number: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return f"{os.fstat(number).st_mode:o}"


def hand_over() -> str:
    """Give a descriptor to whoever is at the other end: its last close may cost them seconds."""
    pair = socket.socketpair() if FACTS["level"] == "outside" else ()
    refused = "nothing is open"
    for number in _open_numbers():
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                socket.send_fds(one, [b"x"], [number])
                return f"{number} took it, {pair}"
        except OSError as error:
            refused = f"{number}: {error.strerror}"
    raise Blocked(refused)


def secret_by_a_directory() -> str:
    """Every descriptor that is open, taken for a directory, and walked up and down from."""
    _leak()
    path = FACTS["secret"].lstrip("/")
    refused = "no directory is open"
    for number in (*range(3), *_open_numbers()):
        for way in (path, "../" * 40 + path):
            try:
                secret = os.open(way, os.O_RDONLY, dir_fd=number)
                return os.read(secret, 4096).decode()
            except OSError as error:
                if error.errno not in {errno.ENOTDIR, errno.EBADF}:
                    refused = f"{number}: {error.strerror}"
    raise Blocked(refused)


def up_from_the_cwd() -> str:
    """The way up from where we are leads to the root that we were given, and no further."""
    path = "../" * 40 + FACTS["secret"].lstrip("/")
    with open(path) as secret:
        return secret.read()


def cwd_outside() -> str:
    """A cwd that has no name here would be one of the host's."""
    if FACTS["level"] == "outside":
        os.chdir(FACTS["outside"])
    here = os.getcwd()
    if here == FACTS["workspace"]:
        raise Blocked(f"in {here}")
    return f"in {here}"


def standard_streams() -> str:
    """0, 1 and 2 opened again by name, with more rights than they were given with."""
    if FACTS["level"] == "outside":
        os.dup2(os.open(FACTS["victim"], os.O_RDONLY), 0)
    for number in range(3):
        if stat.S_ISREG(os.fstat(number).st_mode):
            os.close(os.open(f"/proc/self/fd/{number}", os.O_RDWR))
            return f"{_what(number)} can be written"
    raise Blocked("no file among 0, 1 and 2")


attempt(
    {
        "open": anything_open,
        "give": hand_over,
        "directory": secret_by_a_directory,
        "cwd_up": up_from_the_cwd,
        "cwd": cwd_outside,
        "streams": standard_streams,
    }
)
