"""Writes all bytes to a standard stream, even if another process made it non-blocking."""

import os
import select


def write_all(fd: int, data: bytes) -> None:
    """Write *data*; return when all of it is written.

    Raises:
        OSError: *data* could not be written; BrokenPipeError if the reader is gone.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # A process that shares the descriptor made it non-blocking.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()
