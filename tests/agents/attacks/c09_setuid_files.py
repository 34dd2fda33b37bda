"""Gain by a setuid program or one with capabilities, or leave one for others: neither.

With no_new_privs a setuid bit does nothing inside.  But a file that a run makes in its
workspace belongs to the caller on the host: were it setuid, everybody there could become the
caller.
"""

import ctypes
import os
import shutil
import stat
import struct
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, libc, only_root, syscall

_NOBODY = 65534
_MODE = 0o4755
_AT_FDCWD = -100
_CHMOD, _MKNODAT, _OPENAT2, _FCHMODAT2 = 90, 259, 437, 452
_FILE = os.path.join(FACTS["workspace"], "made-setuid")


def _says(program: str, *arguments: str) -> str:
    """What it prints as an ordinary user."""
    # By descriptor: an ordinary user may not get to the file's directory.
    file = os.open(program, os.O_PATH)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        os.dup2(theirs, 1)
        try:
            os.execve(file, [program, *arguments], {})
        finally:
            os._exit(127)
    os.close(theirs)
    with open(ours) as output:
        said = output.read().strip()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise Blocked(f"exit {code}")
    return said


def setuid_program() -> str:
    """One of root's that lies in the workspace."""
    uid = _says(FACTS["setuid_program"], "-u")
    if uid != "0":
        raise Blocked(f"it ran as {uid}")
    return "it ran as root"


def program_with_capabilities() -> str:
    capabilities = _says(FACTS["capable_program"], "CapEff", "/proc/self/status").split()[-1]
    if not int(capabilities, 16):
        raise Blocked("it ran without any")
    return f"it ran with {capabilities}"


def capabilities_on_a_file() -> str:
    """As root could: a program that later gives them to whoever runs it."""
    only_root()
    _copy()
    # VFS_CAP_REVISION_2 with the effective bit; CAP_SYS_ADMIN permitted
    os.setxattr(_FILE, "security.capability", struct.pack("<5I", 0x0200_0001, 1 << 21, 0, 0, 0))
    return f"{_FILE} has capabilities"


def _copy() -> None:
    shutil.copyfile("/bin/cat", _FILE)


def _is_setuid(path: str = _FILE) -> str:
    mode = os.stat(path).st_mode
    if not mode & stat.S_ISUID:
        raise Blocked(f"no error, and its mode is {mode:o}")
    return f"{path} has mode {mode:o}"


def _made(make: Callable[[], object]) -> Callable[[], str]:
    def made() -> str:
        if os.path.exists(_FILE):
            os.unlink(_FILE)
        os.umask(0)
        make()
        return _is_setuid()

    return made


def _chmod() -> None:
    _copy()
    syscall(_CHMOD, _FILE.encode(), _MODE)


def _chmod_with_high_bits() -> None:
    _copy()
    syscall(_CHMOD, _FILE.encode(), 1 << 32 | _MODE)


def _fchmod() -> None:
    _copy()
    with open(_FILE) as file:
        os.fchmod(file.fileno(), _MODE)


def _fchmodat() -> None:
    _copy()
    os.chmod(os.path.basename(_FILE), _MODE, dir_fd=os.open(FACTS["workspace"], os.O_PATH))


def _fchmodat2() -> None:
    """Linux 6.6."""
    _copy()
    syscall(_FCHMODAT2, _AT_FDCWD, _FILE.encode(), _MODE, 0)


def _setgid() -> None:
    _copy()
    os.chmod(_FILE, 0o2755)
    if os.stat(_FILE).st_mode & stat.S_ISGID:
        os.chmod(_FILE, 0o6755)


def _open() -> None:
    os.close(os.open(_FILE, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))


def _creat() -> None:
    descriptor = libc.creat(_FILE.encode(), _MODE)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "creat")


def _openat2() -> None:
    """The mode is behind a pointer, where no filter sees it."""
    how = struct.pack("=3Q", os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE, 0)
    syscall(_OPENAT2, _AT_FDCWD, _FILE.encode(), ctypes.create_string_buffer(how, 24), 24)


def _mknod() -> None:
    syscall(_MKNODAT, _AT_FDCWD, _FILE.encode(), stat.S_IFREG | _MODE, 0)


attempt(
    {
        "setuid_program": setuid_program,
        "capable_program": program_with_capabilities,
        "chmod": _made(_chmod),
        "chmod_high_bits": _made(_chmod_with_high_bits),
        "fchmod": _made(_fchmod),
        "fchmodat": _made(_fchmodat),
        "fchmodat2": _made(_fchmodat2),
        "setgid": _made(_setgid),
        "open": _made(_open),
        "creat": _made(_creat),
        "openat2": _made(_openat2),
        "mknod": _made(_mknod),
        "setxattr": capabilities_on_a_file,
    }
)
