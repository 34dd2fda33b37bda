"""Bytes to a standard stream, all of them, whatever somebody else did to the descriptor."""

import os
import select


def write_all(fd: int, data: bytes) -> None:
    """Writes *data*; returns when all of it is written.

    Raises:
        OSError: it could not be; BrokenPipeError if nobody reads any more.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Somebody who shares the descriptor made it non-blocking.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
