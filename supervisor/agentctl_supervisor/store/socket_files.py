"""Names the socket files of supervisors, and removes those that killed supervisors left."""

import contextlib
import os
import re
import socket
import stat
from typing import Final

from agentctl_protocol.spawning import ProcessIdentity
from agentctl_supervisor.processes.process_tree import is_alive

_NAME: Final = re.compile(r"(\d{1,10})-(\d{1,20})(?:-\d{1,10})?\.sock")


def name_of(supervisor: ProcessIdentity, number: int) -> str:
    """Return a socket name that no other supervisor of this machine has.

    *number* distinguishes the supervisors of one process.
    """
    return f"{supervisor.pid}-{supervisor.start_time}{f'-{number}' if number else ''}.sock"


def is_supervisors(name: str) -> bool:
    """Return True if *name* has the form that `name_of` returns."""
    return _NAME.fullmatch(name) is not None


def remove_if_dead(path: str | bytes) -> None:
    """Remove the socket at *path* if it belongs to a dead supervisor of this user.

    The socket must refuse connections: a process that is not visible here may be alive in another
    pid namespace.  The process must be gone too: a live one may not listen yet.
    """
    named = _NAME.fullmatch(os.path.basename(os.fsdecode(path)))
    if named is None or is_alive(ProcessIdentity(int(named[1]), int(named[2]))):
        return
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid() and _is_refused(path):
            os.unlink(path)


def _is_refused(path: str | bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        # A supervisor with a full queue of connections is alive: connect(2) fails with EAGAIN.
        trial.setblocking(False)
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            return True
        return False
