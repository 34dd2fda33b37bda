"""Read files that a run left and whose content and kind the run chose, above all artifacts.

Only regular files beneath the workspace or an ``--rw`` path are read, and no link is followed.
A FIFO would block the reader, a device could do anything, a set-uid file is dangerous for the user
who unpacks the copy, and a link leads out of the directory.  The kind is checked on the same inode
that is read afterwards.  The number of bytes that are read is bounded independently of the size in
the inode, because a file may grow meanwhile.

`examine` and `open_artifact` are for code that copies artifacts.  This module copies nothing.
"""

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agentctl_protocol.os_names import display, to_bytes, to_text
from agentctl_supervisor.filesystem.open_beneath import HANDLE, READ, open_beneath, open_root
from agentctl_supervisor.filesystem.writable_roots import relative_to

MAX_FILES: Final = 100
MAX_FILE_BYTES: Final = 64 << 20
MAX_TOTAL_BYTES: Final = 256 << 20
_NOT_READ: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_PIECE: Final = 1 << 16


class Refused(Exception):  # noqa: N818 - a decision, not a fault
    """The path must not be read.  The message completes the sentence "It is ..."."""


class Artifact(NamedTuple):
    """The result for one path: its size in bytes, or the reason why it is ``refused``."""

    path: str
    bytes: int = 0
    refused: str = ""


def examine(paths: Iterable[str], roots: Sequence[bytes]) -> list[Artifact]:
    """Decide for each of *paths*, in order, whether it may be collected.

    The paths are relative to the workspace or absolute.  *roots*: see `writable_roots.roots_of`.
    Sizes are apparent sizes: a sparse file counts in full.  This function blocks, and opens only
    handles.
    """
    told: list[Artifact] = []
    files = total = 0
    for path in dict.fromkeys(paths):
        try:
            handle = _handle(path, roots)
        except Refused as error:
            told.append(Artifact(path, refused=str(error)))
            continue
        size = os.fstat(handle).st_size
        os.close(handle)
        refused = ""
        if files >= MAX_FILES:
            refused = f"one more than {MAX_FILES} files"
        elif total + size > MAX_TOTAL_BYTES:
            refused = f"more than what is left of {MAX_TOTAL_BYTES >> 20} MiB for all"
        else:
            files, total = files + 1, total + size
        told.append(Artifact(path, size, refused))
    return told


def open_artifact(path: str, roots: Sequence[bytes]) -> int:
    """Return a descriptor for reading the regular file *path*.

    The caller closes it, and reads at most `MAX_FILE_BYTES`.

    Raises:
        Refused: it does not exist, is not a plain file, is too large, or is outside of *roots*.
    """
    handle = _handle(path, roots)
    try:
        # Opened through the handle, so that it is the inode that was checked.
        return os.open(f"/proc/self/fd/{handle}", READ)
    except OSError as error:
        raise Refused(f"not readable: {error.strerror}") from None
    finally:
        os.close(handle)


def read_small(root: int, path: bytes, most: int) -> bytes | None:
    """Return the content of the file *path* beneath *root*.

    The result is None if it cannot be read, is not a regular file, or has over *most* bytes.
    """
    try:
        fd = open_beneath(root, path, READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = bytearray()
        while len(data) <= most and (piece := os.read(fd, min(_PIECE, most + 1 - len(data)))):
            data += piece
        return bytes(data) if len(data) <= most else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _handle(path: str, roots: Sequence[bytes]) -> int:
    root, below = _place(path, roots)
    try:
        directory = open_root(root)
    except OSError as error:
        raise Refused(f"not there: {display(to_text(root))}: {error.strerror}") from None
    try:
        handle = open_beneath(directory, below, HANDLE)
    except OSError as error:
        raise Refused(_why_not(error)) from None
    finally:
        os.close(directory)
    refused = _why_not_read(os.fstat(handle))
    if refused:
        os.close(handle)
        raise Refused(refused)
    return handle


def _place(path: str, roots: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Return the root that *path* lies beneath, and its path relative to that root."""
    if not roots:
        raise Refused("not in a workspace: the run had none")
    try:
        raw = to_bytes(path)
    except ValueError:
        raise Refused("no path") from None
    if not raw or b"\0" in raw:
        raise Refused("no path")
    whole = os.path.normpath(os.path.join(roots[0], raw))
    for root in roots:
        below = relative_to(whole, (root,))
        if below is not None:
            return root, below
    raise Refused("outside of what the run could write to")


def _why_not(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "behind a symbolic link"
    if error.errno == errno.EXDEV:
        return "on another mount"
    return "not there" if error.errno == errno.ENOENT else f"not to be had: {error.strerror}"


def _why_not_read(found: os.stat_result) -> str:
    if (refused := _NOT_READ.get(stat.S_IFMT(found.st_mode))) is not None:
        return refused
    if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        return "a set-uid or set-gid program"
    if found.st_size > MAX_FILE_BYTES:
        return f"over {MAX_FILE_BYTES >> 20} MiB"
    return ""
