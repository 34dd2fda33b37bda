"""Leave a setuid file in the workspace, which may be root's on the host: refused."""

import os
import stat

from attempt import FACTS, Blocked, attempt, only_root, syscall

WORKSPACE = FACTS["workspace"]
_SYS_FCHMODAT2 = 452
_AT_FDCWD = -100
SETUID = 0o4755


def path(name: str) -> str:
    return f"{WORKSPACE}/{name}"


def made(name: str, mode: int = 0o755) -> int:
    return os.open(path(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)


def proven(name: str) -> str:
    mode = os.lstat(path(name)).st_mode
    if not mode & (stat.S_ISUID | stat.S_ISGID):
        raise Blocked(f"mode {mode:o}")
    return f"{mode:o}"


def by_chmod(mode: int) -> str:
    name = f"chmod-{mode:o}"
    os.close(made(name))
    os.chmod(path(name), mode)
    return proven(name)


def by_fchmod() -> str:
    os.fchmod(made("fchmod"), SETUID)
    return proven("fchmod")


def by_fchmodat() -> str:
    os.close(made("fchmodat"))
    os.chmod("fchmodat", SETUID, dir_fd=os.open(WORKSPACE, os.O_PATH))
    return proven("fchmodat")


def by_fchmodat2() -> str:
    os.close(made("fchmodat2"))
    syscall(_SYS_FCHMODAT2, _AT_FDCWD, path("fchmodat2").encode(), SETUID, 0)
    return proven("fchmodat2")


def by_open() -> str:
    """Empty, it is good for nothing; whoever writes to it without privileges loses the bit."""
    only_root()
    os.umask(0)
    os.write(made("open", SETUID), b"#!/bin/sh\n")
    return proven("open")


def by_mknod() -> str:
    os.umask(0)
    os.mknod(path("mknod"), stat.S_IFREG | SETUID)
    return proven("mknod")


attempt(
    {
        "chmod": lambda: by_chmod(SETUID),
        "chmod, setgid": lambda: by_chmod(0o2755),
        "fchmod": by_fchmod,
        "fchmodat": by_fchmodat,
        "fchmodat2": by_fchmodat2,
        "open, then written": by_open,
        "mknod": by_mknod,
    }
)
