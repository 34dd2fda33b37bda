"""Id maps for mounts: one owner's files appear as another's (mount_setattr(2), Linux 5.12).

A mount takes its map from a user namespace. The namespace is made by a process that does nothing
else and is dead before the map is used. No other process ever runs in it.
"""

import contextlib
import functools
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Final, Self

from agentctl_child.sandbox import clone, syscalls
from agentctl_child.sandbox.descriptors import closing

#: The last number, 2^32 - 1, means "no id".
_END: Final = 0xFFFF_FFFF
_WHOLE: Final = ((0, _END),)

Line = tuple[int, int, int]
"""A line of a map: the first id on disk, the first id as shown, and the count."""


def exchange(owner: int, shown: int, ids: Iterable[tuple[int, int]] = _WHOLE) -> tuple[Line, ...]:
    """Return the map that exchanges two ids and leaves all others unchanged; it is one to one.

    ``ids``: the ranges (first, end) of ids that exist in our own user namespace. Files of
    ``owner`` on disk are shown as files of ``shown``; files that ``shown`` makes are stored as
    files of ``owner``. The other half of the exchange makes the map one to one. If a file on disk
    belongs to ``shown``, it appears as a file of ``owner``, and no process of the run has that id.
    """
    if owner == shown:
        return tuple((first, first, end - first) for first, end in ids)
    low, high = sorted((owner, shown))
    lines: list[Line] = []
    for first, end in ids:
        at = first
        for special, other in ((low, high), (high, low)):
            if at <= special < end:
                if special > at:
                    lines.append((at, at, special - at))
                lines.append((special, other, 1))
                at = special + 1
        if at < end:
            lines.append((at, at, end - at))
    return tuple(lines)


@functools.cache
def present(name: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of ids of our own user namespace, which never change.

    ``name`` is ``uid_map`` or ``gid_map``.
    """
    with open(f"/proc/self/{name}", "rb") as file:
        lines = [line.split() for line in file]
    return tuple((int(line[0]), min(int(line[0]) + int(line[2]), _END)) for line in lines)


class Namespace:
    """A user namespace to take a map from, and a process that is only its member.

    It needs CAP_SETUID and CAP_SETGID, and is therefore for root only. It gives no rights to any
    process: the map of a namespace without processes is only a table. The process is killed before
    the map is used; leaving the context waits for its end. Raises OSError.
    """

    def __init__(self) -> None:
        self._pid, self._pidfd = clone.fork(clone.NEW_USER)
        if self._pid == 0:
            # All signals are blocked, so only a SIGKILL or the end of the pid namespace ends this.
            while True:
                signal.pause()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        os.close(self._pidfd)
        os.waitpid(self._pid, 0)

    def mapped(self, proc: int, uids: Sequence[Line], gids: Sequence[Line]) -> int:
        """Return a descriptor of the namespace with these maps; may be called once.

        ``proc``: descriptor of a writable /proc of our own pid namespace.
        """
        for name, lines in (("uid_map", uids), ("gid_map", gids)):
            text = "".join(f"{disk} {shown} {count}\n" for disk, shown, count in lines)
            # A single write(2): the kernel accepts each of these files exactly once.
            path = f"{self._pid}/{name}"
            flags = os.O_WRONLY | os.O_CLOEXEC
            with closing(syscalls.call("open", os.open, path, flags, dir_fd=proc)) as descriptor:
                syscalls.call(name, os.write, descriptor, text.encode())
        path, flags = f"{self._pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC
        namespace = syscalls.call("open", os.open, path, flags, dir_fd=proc)
        self._kill()
        return namespace

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
