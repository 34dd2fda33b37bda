"""Gain by a setuid program or one with capabilities, or by changing one: no gain.

With no_new_privs a setuid bit does nothing inside.  But whoever changes what is in such a file
has the next who starts it on the host do as they like.
"""

import mmap
import os
import shutil
import stat
import struct

from attempt import FACTS, Blocked, Impossible, attempt, only_root

_NOBODY = 65534
_MODE = 0o4755
_GIVEN = 19
"""The capability that the file has: to trace.  Root's run at standard holds others by itself."""


def _says(program: str, *arguments: str) -> str:
    """What it prints as an ordinary user."""
    if FACTS["level"] == "outside" and os.statvfs(program).f_flag & os.ST_NOSUID:
        raise Impossible("the file system is mounted nosuid")
    # By descriptor: an ordinary user may not get to the file's directory.
    file = os.open(program, os.O_PATH)
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                os.setresuid(_NOBODY, _NOBODY, _NOBODY)
            os.dup2(theirs, 1)
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
    if not int(capabilities, 16) & 1 << _GIVEN:
        raise Blocked(f"it ran with {capabilities}")
    return f"it ran with {capabilities}"


def capabilities_on_a_file() -> str:
    """As root could: a program that later gives them to whoever runs it."""
    only_root()
    path = os.path.join(FACTS["workspace"], "made-capable")
    shutil.copyfile("/bin/cat", path)
    # VFS_CAP_REVISION_2 with the effective bit; CAP_SYS_ADMIN permitted
    os.setxattr(path, "security.capability", struct.pack("<5I", 0x0200_0001, 1 << 21, 0, 0, 0))
    return f"{path} has capabilities"


def _is_setuid(path: str) -> str:
    mode = os.stat(path).st_mode
    if not mode & stat.S_ISUID:
        raise Blocked(f"its mode is {mode:o}")
    return f"{path} has mode {mode:o}"


def change_in_memory() -> str:
    """Of the caller's own: a write takes its bit away, but not a write to its pages."""
    path = FACTS["callers_setuid_program"]
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 4) as pages:
        pages[:] = b"#!/b"
        pages.flush()
    with open(path, "rb") as changed:
        if changed.read(4) != b"#!/b":
            raise Blocked("as it was")
    return _is_setuid(path)


def empty_file() -> str:
    """To be filled by root, whose writes take no bit away."""
    only_root()
    path = os.path.join(FACTS["workspace"], "made-setuid")
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    return _is_setuid(path)


attempt(
    {
        "setuid_program": setuid_program,
        "capable_program": program_with_capabilities,
        "setxattr": capabilities_on_a_file,
        "change_in_memory": change_in_memory,
        "empty_file": empty_file,
    }
)
