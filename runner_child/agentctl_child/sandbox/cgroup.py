"""The cgroup v2 directory of a run, if it has one."""

import os


def kill_cgroup(directory: int) -> bool:
    """Send SIGKILL to every member, atomically against forks; return False before kernel 5.14."""
    try:
        switch = os.open("cgroup.kill", os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        os.write(switch, b"1")
    except OSError:
        return False
    finally:
        os.close(switch)
    return True
