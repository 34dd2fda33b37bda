"""Read a file outside by another name for it (/proc/self/root, descriptors): none leads there."""

import ctypes
import errno
import os
import struct

from attempt import FACTS, attempt, may_lack, only_root, syscall

SECRET = FACTS["secret"]
VICTIM_PID = FACTS["victim_pid"]
_SYS_OPENAT2 = 437
_AT_FDCWD = -100


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def by_openat2() -> str:
    how = ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDONLY, 0, 0), 24)
    path = ctypes.c_char_p(SECRET.encode())
    return os.read(syscall(_SYS_OPENAT2, _AT_FDCWD, path, how, 24), 4096).decode()


def by_descriptor(prefix: str) -> str:
    descriptor = os.open(FACTS["workspace"], os.O_PATH | os.O_DIRECTORY)
    return read(f"{prefix}/{descriptor}/../outside/secret")


def by_root_descriptor() -> str:
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    return read(f"/proc/self/fd/{descriptor}{SECRET}")


def by_init() -> str:
    only_root()
    with may_lack("pid 1 that is ours", errno.EACCES):
        return read(f"/proc/1/root{SECRET}")


attempt(
    {
        "/proc/self/root": lambda: read(f"/proc/self/root{SECRET}"),
        "/proc/thread-self/root": lambda: read(f"/proc/thread-self/root{SECRET}"),
        "/proc/PID/root": lambda: read(f"/proc/{os.getpid()}/root{SECRET}"),
        "/proc/self/cwd": lambda: read("/proc/self/cwd/../outside/secret"),
        "/proc/self/fd": lambda: by_descriptor("/proc/self/fd"),
        "/dev/fd": lambda: by_descriptor("/dev/fd"),
        "descriptor of /": by_root_descriptor,
        "/proc/1/root": by_init,
        "victim's root": lambda: read(f"/proc/{VICTIM_PID}/root{SECRET}"),
        "victim's descriptor": lambda: read(f"/proc/{VICTIM_PID}/fd/0"),
        "openat2": by_openat2,
        "many slashes": lambda: read(f"//..//{SECRET.replace('/', '//./')}"),
    }
)
