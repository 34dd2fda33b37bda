"""What this machine can do, asked of the kernel and not of agentctl.

``@needs(Capability.ROOT)`` is the only way in which a test may be skipped: the
hook in ``tests/conftest.py`` turns every other skip into a failure.  So a green
run means that everything ran that this machine can run.
"""

import ctypes
import enum
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWUSER: Final = 0x1000_0000
_CLONE_NEWPID: Final = 0x2000_0000
_SYS_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_CREATE_RULESET_VERSION: Final = 1

_libc: Final = ctypes.CDLL(None, use_errno=True)


class Capability(enum.StrEnum):
    """Something that not every machine has; the text completes "this machine has no ..."."""

    ROOT = "root privileges"
    ORDINARY_USER = "ordinary user (these tests run as root)"
    PID_NAMESPACE = "pid namespaces for this user"
    USER_NAMESPACE = "user namespaces"
    OWN_PID_MAX = "pid_max of a pid namespace's own (Linux 6.14)"
    MEMORY_CGROUP = "writable control group with a memory limit"
    HELD_PAGES = "userfaultfd device for this user"
    CGROUP2 = "writable cgroup v2 directory"
    LANDLOCK_SCOPE = "Landlock with signal scope (ABI 6)"
    YAMA_OFF = "freedom to ptrace siblings"
    COUNTERS = "performance counters for this user (kernel.perf_event_paranoid)"
    ORDINARY_PYTHON = "interpreter of this version that an ordinary user can run, or no root"
    NODE = "Node.js 18 or newer"
    NPM = "npm"
    BUILD_TOOLS = "C compiler and make"
    PERL = "Perl with its standard modules"
    JAVA = "Java with a compiler"
    PROCPS = "ps, top and free"
    CURL = "curl"
    SQLITE_SHELL = "SQLite shell"
    ZIP = "zip and unzip"
    STRACE = "strace"
    ENSUREPIP = "pip for virtual environments"
    PIPX = "pipx"
    UV = "uv"

    @property
    def here(self) -> bool:
        """Whether this machine, and this user, has it."""
        return _has(self)


def needs(*capabilities: Capability) -> pytest.MarkDecorator:
    """Run the test only where all of *capabilities* are."""
    return pytest.mark.needs(*capabilities)


def cgroup2_mount() -> Path | None:
    """Where cgroup v2 is mounted, alone or beside version 1."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup2":
            return Path(before.split()[4])
    return None


@functools.cache
def _has(capability: Capability) -> bool:
    return _PROBES[capability]()


def _succeeds_in_a_child(act: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _user_namespace() -> bool:
    return _succeeds_in_a_child(lambda: _unshare(_CLONE_NEWUSER | _CLONE_NEWNS))


def _pid_namespace() -> bool:
    user = 0 if os.geteuid() == 0 else _CLONE_NEWUSER
    return _succeeds_in_a_child(lambda: _unshare(user | _CLONE_NEWPID | _CLONE_NEWNS))


def memory_groups() -> tuple[Path, str] | None:
    """Below which directory groups can bound memory, and by which file in them."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        place = Path(before.split()[4])
        kind, _, options = after.split()[:3]
        if not os.access(place, os.W_OK):
            continue
        if kind == "cgroup" and "memory" in options.split(","):
            return place, "memory.limit_in_bytes"
        enabled = place / "cgroup.subtree_control"
        if kind == "cgroup2" and "memory" in enabled.read_text().split():
            return place, "memory.max"
    return None


def _own_pid_max() -> bool:
    if os.geteuid() != 0:
        return False
    # Told apart without a trial, which would change the machine's where it is not.
    major, minor = (int(number) for number in os.uname().release.split(".")[:2])
    return (major, minor) >= (6, 14)


def _cgroup2() -> bool:
    mount = cgroup2_mount()
    if mount is None:
        return False
    directory = mount / f"agentctl-probe-{os.getpid()}"
    try:
        directory.mkdir()
        directory.rmdir()
    except OSError:
        return False
    return True


def _landlock_scope() -> bool:
    abi = _libc.syscall(
        _SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    return bool(abi >= 6)


def _yama_off() -> bool:
    try:
        return Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() == "0"
    except FileNotFoundError:
        return True


def _counters() -> bool:
    try:
        paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except FileNotFoundError:
        return False
    # Debian's 3 leaves an ordinary user none.
    return os.geteuid() == 0 or paranoid <= 2


def _ordinary_python() -> bool:
    from agentctl_testkit.ordinary import interpreter

    return os.geteuid() == 0 and interpreter() is not None


def _node() -> bool:
    try:
        told = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return int(told.stdout.removeprefix("v").partition(".")[0]) >= 18


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) for name in names)


def _succeeds(*argv: str) -> Callable[[], bool]:
    def probe() -> bool:
        try:
            subprocess.run(argv, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    return probe


def _ensurepip() -> bool:
    from agentctl_testkit.ordinary import interpreter

    python = (interpreter() if os.geteuid() == 0 else None) or sys.executable
    return _succeeds(python, "-I", "-c", "import ensurepip, venv")()


_PROBES: Final[dict[Capability, Callable[[], bool]]] = {
    Capability.ROOT: lambda: os.geteuid() == 0,
    Capability.ORDINARY_USER: lambda: os.geteuid() != 0,
    Capability.PID_NAMESPACE: _pid_namespace,
    Capability.USER_NAMESPACE: _user_namespace,
    Capability.OWN_PID_MAX: _own_pid_max,
    Capability.MEMORY_CGROUP: lambda: memory_groups() is not None,
    Capability.HELD_PAGES: lambda: os.access("/dev/userfaultfd", os.R_OK | os.W_OK),
    Capability.CGROUP2: _cgroup2,
    Capability.LANDLOCK_SCOPE: _landlock_scope,
    Capability.YAMA_OFF: _yama_off,
    Capability.COUNTERS: _counters,
    Capability.ORDINARY_PYTHON: _ordinary_python,
    Capability.NODE: _node,
    Capability.NPM: _programs("npm"),
    Capability.BUILD_TOOLS: _programs("cc", "make", "ar"),
    Capability.PERL: _succeeds("perl", "-MIO::Socket::INET", "-MFile::Temp", "-e", "1"),
    Capability.JAVA: _programs("java", "javac"),
    Capability.PROCPS: _programs("ps", "top", "free", "pgrep"),
    Capability.CURL: _programs("curl"),
    Capability.SQLITE_SHELL: _programs("sqlite3"),
    Capability.ZIP: _programs("zip", "unzip"),
    Capability.STRACE: _programs("strace"),
    Capability.ENSUREPIP: _ensurepip,
    Capability.PIPX: _programs("pipx"),
    Capability.UV: _programs("uv"),
}
