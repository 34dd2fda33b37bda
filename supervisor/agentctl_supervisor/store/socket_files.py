"""The sockets of supervisors, as files: one that was killed leaves its own behind."""

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
    """A name that no other supervisor of this machine has; *number*: which one of its process."""
    return f"{supervisor.pid}-{supervisor.start_time}{f'-{number}' if number else ''}.sock"


def is_supervisors(name: str) -> bool:
    """Whether *name* is one that `name_of` gives."""
    return _NAME.fullmatch(name) is not None


def remove_if_dead(path: str | bytes) -> None:
    """Remove the socket at *path* if it is one of a supervisor of ours which is dead.

    That is one on which nobody listens: a process that is not seen may live in another pid
    namespace; and one that lives may not have begun to listen.
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
        # Whose queue of connections is full, lives: EAGAIN.
        trial.setblocking(False)
        try:
            trial.connect(path)
        except ConnectionRefusedError:
            return True
        return False
