"""A `Launch` as it travels: in a memfd that nobody can change any more."""

import fcntl
import os
from typing import Final

from agentctl_protocol.spawning import Launch, pack
from agentctl_supervisor.errors import SpawnError

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def memfd_of(launch: Launch) -> int:
    """A sealed memfd that holds *launch*; the caller closes it.

    Raises:
        SpawnError: we are out of descriptors.
    """
    try:
        return _sealed(pack(launch))
    except OSError as error:
        raise SpawnError(f"cannot start a run: {error.strerror}", "see `ulimit -n`") from None


def _sealed(data: bytes) -> int:
    fd = os.memfd_create("agentctl-launch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
