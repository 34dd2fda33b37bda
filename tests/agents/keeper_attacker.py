"""Attacks its keepers in every way that is known, says how each attempt went, and stays.

``keeper_attacker.py starve`` does but one thing, to init.
``keeper_attacker.py init`` (in a pid namespace, where init is all that it can name) or
``keeper_attacker.py chain`` (in the fallback: warden, spawner and supervisor are its
ancestors).  Each attempt is one line, ``attack NAME TARGET OUTCOME``; the outcome is the
name of an error, or ``done``.

``AGENTCTL_TEST_CGROUP``: a cgroup that the supervisor is in.
"""

import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable

from membership import Tree, arguments, ignore_all, report, seconds_left, stay

PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_DETACH = 16, 0x4206, 17
SYS_PIDFD_GETFD = 438
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x0002_0000, 0x1000_0000, 0x2000_0000
MNT_DETACH, MS_REMOUNT = 2, 32
F_SETSIG = 10

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
Attack = Callable[[int], object]


def checked(result: int) -> int:
    """What a C function returned; raises OSError for -1."""
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def ptrace(request: int, pid: int) -> None:
    checked(libc.ptrace(request, pid, None, None))


def steal_descriptor(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    for number in range(12):
        try:
            os.close(checked(libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)))
            return
        except OSError as error:
            refusal = error
            if error.errno != errno.EBADF:
                break
    raise refusal


def kill_group(pid: int) -> None:
    group = os.getpgid(pid)
    if group == 0:  # one outside the namespace: 0 would mean the own one
        raise ProcessLookupError(errno.ESRCH, "")
    os.killpg(group, signal.SIGKILL)


def signal_by_pidfd(pid: int) -> None:
    signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)


def own_a_descriptor(pid: int, kind: int | None = None) -> None:
    """Have the kernel send SIGKILL to *pid* when something can be read."""
    reading, writing = os.pipe()
    if kind is None:
        fcntl.fcntl(reading, fcntl.F_SETOWN, pid)
    else:
        fcntl.fcntl(reading, 15, struct.pack("ii", kind, pid))  # F_SETOWN_EX
    fcntl.fcntl(reading, F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writing, b"x")


def limit(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))


def idle(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def open_memory(pid: int) -> None:
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))


def read_environment(pid: int) -> None:
    with open(f"/proc/{pid}/environ", "rb") as file:
        file.read(1)


def open_descriptors(pid: int) -> None:
    """Names may be seen by whoever may read every directory; what they name may not."""
    os.listdir(f"/proc/{pid}/fd")
    os.close(os.open(f"/proc/{pid}/fd/0", os.O_RDONLY))


def write_oom_score(pid: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")


def enter_namespaces(pid: int) -> None:
    entered = 0
    for name in ("pid", "mnt", "user", "net"):
        own, other = (os.stat(f"/proc/{who}/ns/{name}").st_ino for who in ("self", pid))
        if own == other:
            continue
        namespace = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        checked(libc.setns(namespace, 0))
        entered += 1
    if not entered:
        raise OSError(errno.EINVAL, "the same namespaces")


def enter_by_pidfd(pid: int) -> None:
    checked(libc.setns(os.pidfd_open(pid), CLONE_NEWNS | CLONE_NEWPID))


ON_A_PROCESS: dict[str, Attack] = {
    "ptrace_attach": lambda pid: ptrace(PTRACE_ATTACH, pid),
    "ptrace_seize": lambda pid: ptrace(PTRACE_SEIZE, pid),
    "pidfd_getfd": steal_descriptor,
    "sigstop": lambda pid: os.kill(pid, signal.SIGSTOP),
    "sigkill": lambda pid: os.kill(pid, signal.SIGKILL),
    "killpg": kill_group,
    "tgkill": lambda pid: checked(libc.tgkill(pid, pid, signal.SIGSTOP)),
    "pidfd_send_signal": signal_by_pidfd,
    "f_setown": own_a_descriptor,
    "f_setown_ex": lambda pid: own_a_descriptor(pid, kind=1),
    "prlimit": limit,
    "sched_idle": idle,
    "proc_mem": open_memory,
    "proc_environ": read_environment,
    "proc_fd": open_descriptors,
    "oom_score_adj": write_oom_score,
    "setns": enter_namespaces,
    "setns_pidfd": enter_by_pidfd,
}


def remount_proc() -> None:
    checked(libc.mount(b"proc", b"/proc", None, MS_REMOUNT, None))


def unmount_proc() -> None:
    checked(libc.umount2(b"/proc", MNT_DETACH))


def unmount_in_new_namespaces() -> None:
    """As the root of a user namespace it may mount, but not uncover what was covered."""
    checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    unmount_proc()


def write_core_pattern() -> None:
    with open("/proc/sys/kernel/core_pattern", "r+") as file:
        file.read(1)


def signal_everybody() -> None:
    os.kill(-1, signal.SIGWINCH)  # ignored by whoever gets it: the permission is what is tried


def freeze(directory: str) -> None:
    with open(f"{directory}/cgroup.freeze", "w") as file:
        file.write("1")


def move_into(directory: str) -> None:
    with open(f"{directory}/cgroup.procs", "w") as file:
        file.write("0")


def own_cgroup() -> str:
    if "AGENTCTL_TEST_CGROUP" not in os.environ:
        return ""
    with open("/proc/self/cgroup") as file:
        path = next(line[4:-1] for line in file if line.startswith("0::/"))
    return f"{os.environ['AGENTCTL_TEST_CGROUP_MOUNT']}/{path}"


OWN_CGROUP: str = own_cgroup()  # before it is left
ON_THE_SYSTEM: dict[str, Callable[[], object]] = {
    "remount_proc": remount_proc,
    "umount_proc": unmount_proc,
    "umount_proc_in_userns": unmount_in_new_namespaces,
    "core_pattern": write_core_pattern,
    "kill_everybody": signal_everybody,
}
ON_CGROUPS: dict[str, Callable[[], object]] = {
    # First out of the own one, then freeze: init, the keepers, and so everybody who could act.
    "cgroup_join_keepers": lambda: move_into(os.environ["AGENTCTL_TEST_CGROUP"]),
    "cgroup_leave": lambda: move_into(os.environ["AGENTCTL_TEST_CGROUP_MOUNT"]),
    "cgroup_freeze_own": lambda: freeze(OWN_CGROUP),
    "cgroup_freeze_keepers": lambda: freeze(os.environ["AGENTCTL_TEST_CGROUP"]),
}


def fork_when_possible() -> int:
    """Fork; in the fallback all processes of the user count, and others may have used them up."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            if seconds_left() < 1:
                raise
            time.sleep(0.05)


def try_in_a_child(name: str, target: str, attack: Callable[[], object]) -> None:
    """Attempt it where its success can harm nobody but a child, and say how it went."""
    child = fork_when_possible()
    if child == 0:
        outcome = "done"
        try:
            attack()
        except OSError as error:
            outcome = errno.errorcode.get(error.errno or 0, str(error.errno))
        report(f"attack {name} {target} {outcome}")
        os._exit(0)
    until = time.monotonic() + 5
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            report(f"attack {name} {target} hung")
            os.waitpid(child, 0)
            return
        time.sleep(0.005)


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def keepers(how: str) -> dict[str, int]:
    """Those that it can name."""
    if how == "init":
        return {"init": 1}
    warden = os.getppid()
    spawner = parent_of(warden)
    return {"warden": warden, "spawner": spawner, "supervisor": parent_of(spawner)}


def starve_init() -> None:
    """Take init's descriptors away, so that its next poll fails."""
    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.05)  # an orphan to reap: something for init to wake up for
        os._exit(0)
    stay()


if __name__ == "__main__":
    tree = Tree()
    if arguments() == ["starve"]:
        tree.up("root")
        starve_init()
    for role, pid in keepers(arguments()[0]).items():
        for name, attack in ON_A_PROCESS.items():
            try_in_a_child(name, role, lambda attack=attack, pid=pid: attack(pid))  # type: ignore[misc]
    for name, deed in ON_THE_SYSTEM.items():
        try_in_a_child(name, "system", deed)
    ignore_all()  # not before: with SIGCHLD ignored nobody could be waited for
    if os.fork() == 0:
        os.setsid()
        tree.up("escaper")
        stay()
    tree.wait_for(1)
    if "AGENTCTL_TEST_CGROUP" in os.environ:
        for name, deed in ON_CGROUPS.items():
            # Not in a child: it is the root itself that leaves.
            outcome = "done"
            try:
                deed()
            except OSError as error:
                outcome = errno.errorcode.get(error.errno or 0, str(error.errno))
            report(f"attack {name} cgroup {outcome}")
    tree.complete(0)
    sys.exit(1)
