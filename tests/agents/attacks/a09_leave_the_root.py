"""Leave by chroot and dot-dot, or open a file by its handle: refused."""

import ctypes
import os

from attempt import FACTS, attempt, checked, libc, only_root


def climb() -> str:
    only_root()
    os.makedirs(f"{FACTS['workspace']}/cell")
    os.chdir("/")
    os.chroot(f"{FACTS['workspace']}/cell")
    for _ in range(64):
        os.chdir("..")
    with open(f".{FACTS['secret']}") as file:
        return file.read()


def by_handle() -> str:
    """The workspace is on the file system that the handle is of: all that it takes."""
    only_root()
    kind, data = FACTS["handle"]
    body = bytes.fromhex(data)
    handle = ctypes.create_string_buffer(
        len(body).to_bytes(4, "little") + kind.to_bytes(4, "little", signed=True) + body
    )
    mount = os.open(FACTS["workspace"], os.O_RDONLY | os.O_DIRECTORY)
    return os.read(checked(libc.open_by_handle_at(mount, handle, os.O_RDONLY)), 4096).decode()


attempt({"chroot": climb, "open_by_handle_at": by_handle})
