"""Talk to the host, or to another run, by locks on a file that both may only read: no answer.

To lock takes no right to write; a lock is one bit, that whoever sees the file can read.
"""

import errno
import fcntl
import struct

from attempt import FACTS, Blocked, attempt

_FLOCK = "hhqqi4x"
_F_OFD_GETLK = 36


def flock() -> str:
    """The host holds a lock, so that ours is refused: we know something of the host."""
    with open(FACTS["locked"]) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return "somebody holds it"
    raise Blocked("nobody holds it")


def _asked(command: int) -> str:
    with open(FACTS["locked"]) as file:
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind, _, start, length, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, command, wanted))
    if kind == fcntl.F_UNLCK:
        raise Blocked("nobody holds it")
    return f"somebody ({pid}) holds {length} bytes from {start}"


def record_lock() -> str:
    return _asked(fcntl.F_GETLK)


def description_lock() -> str:
    return _asked(_F_OFD_GETLK)


attempt({"flock": flock, "record": record_lock, "description": description_lock})
