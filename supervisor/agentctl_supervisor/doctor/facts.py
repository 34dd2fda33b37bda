"""Collects facts about this machine; tries things out where that is possible.

This module reads, and removes what its trials make.  It does not judge the facts.  It does not
raise: if a fact cannot be found out, a field says so.
"""

import ctypes
import os
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.doctor import chain
from agentctl_supervisor.doctor.chain import Chain
from agentctl_supervisor.doctor.host_environment import container_kind, has_every_uid, user_manager
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.filesystem.mount_table import cgroup2_mount, mounts, table
from agentctl_supervisor.filesystem.path_trust import check_ours
from agentctl_supervisor.filesystem.state_paths import runtime_directory, state_root
from agentctl_supervisor.processes import isolated_python
from agentctl_supervisor.processes.run_cgroup import make_run_cgroup
from agentctl_supervisor.run.launch import DEFAULT_LEVEL, LEVEL_VARIABLE
from agentctl_supervisor.spawner.start import StartedSpawner

_PROBE_WITHIN_S: Final = 20.0
_LANDLOCK_CREATE_RULESET: Final = 444
_CREATE_RULESET_VERSION: Final = 1
_SETTINGS: Final = (
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/unprivileged_userns_clone",
    *(f"user/max_{kind}_namespaces" for kind in ("user", "pid", "mnt", "net", "ipc", "uts")),
    "user/max_cgroup_namespaces",
    "fs/inotify/max_user_instances",
)

_TRIAL_BYTES: Final = 1 << 16


class Place(msgspec.Struct, frozen=True):
    """A directory that agentctl uses.  ``trouble``: why it cannot be used, or empty."""

    path: str
    exists: bool = False
    trouble: str = ""
    filesystem: str = ""
    free_bytes: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that were found.  A text that describes a problem is empty if there is none.

    ``level``: the default sandbox level of runs.  ``chains``: the results of the sandbox's
    setup steps, for each level.
    """

    uid: int
    user: str = ""
    python: str = ""
    level: Sandbox = DEFAULT_LEVEL
    chains: dict[str, Chain] = {}
    container: str = ""
    every_uid: bool = True
    user_manager: str = ""
    kernel: str
    pid_namespace: str
    sealed: bool
    probe: str = ""
    landlock_abi: int = 0
    seccomp: bool = False
    settings: dict[str, int] = {}
    cgroup_mount: str = ""
    cgroup: bool = False
    controllers: tuple[str, ...] = ()
    state: Place
    runtime: Place
    longest_socket: int = 0
    spawner: str = ""
    spawner_s: float = 0.0
    distributions: dict[str, str] = {}
    boot_id: bool = True
    now: float = 0.0


def find_out(environ: Mapping[str, str]) -> Facts:
    """Collect all facts.  This takes well under a second on a quiet machine."""
    pid_namespace, sealed, probe = _probe()
    chains = chain.find_out(environ, pid_namespace=not (pid_namespace or probe))
    spawner, spawner_s = _spawner()
    mount = cgroup2_mount()
    runtime = _place(lambda: runtime_directory(environ))
    return Facts(
        uid=os.geteuid(),
        user=_user(),
        python=os.path.realpath(sys.executable),
        level=_level(environ),
        chains=chains,
        container=container_kind(environ),
        every_uid=has_every_uid(),
        user_manager=user_manager(environ),
        kernel=os.uname().release,
        pid_namespace=pid_namespace,
        sealed=sealed,
        probe=probe,
        landlock_abi=_landlock_abi(),
        seccomp=os.path.exists("/proc/sys/kernel/seccomp/actions_avail"),
        settings=_settings(),
        cgroup_mount="" if mount is None else os.fspath(mount),
        cgroup=_has_cgroup(),
        controllers=_controllers(),
        state=_place(lambda: _state(environ)),
        runtime=runtime,
        longest_socket=len(os.fsencode(runtime.path)) + len("/4194304-18446744073709551615.sock"),
        spawner=spawner,
        spawner_s=spawner_s,
        distributions=_distributions(),
        boot_id=os.path.exists("/proc/sys/kernel/random/boot_id"),
        now=time.time(),
    )


def _probe() -> tuple[str, bool, str]:
    """Try in a separate process if runs can have a pid namespace and can be sealed.

    Returns three values: why there is no pid namespace (or empty), True if the fallback can be
    sealed, and why the probe did not work (or empty).
    """
    command = isolated_python.command("agentctl_child.keepers.probe")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=_PROBE_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", False, f"no answer in {_PROBE_WITHIN_S:g} s"
    except OSError as error:
        return "", False, error.strerror or "it cannot be started"
    try:
        found: dict[str, Any] = msgspec.json.decode(done.stdout)
        return str(found["pid-namespace"]), bool(found["sealed"]), ""
    except (msgspec.DecodeError, KeyError, TypeError):
        return "", False, _last_line(done.stderr) or f"exit code {done.returncode}"


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")[:200]


def _spawner() -> tuple[str, float]:
    """Start a spawner; return why it did not start (or empty), and the seconds that it took."""
    began = time.monotonic()
    try:
        with StartedSpawner() as spawner:
            spawner.wait_ready(_PROBE_WITHIN_S)
            return "", time.monotonic() - began
    except AgentctlError as error:
        return str(error), time.monotonic() - began


def _landlock_abi() -> int:
    """Return the ABI version of Landlock, or 0 if there is no Landlock.  Creates nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    null, size = ctypes.c_void_p(), ctypes.c_size_t()
    abi: int = libc.syscall(_LANDLOCK_CREATE_RULESET, null, size, _CREATE_RULESET_VERSION)
    return max(abi, 0)


def _settings() -> dict[str, int]:
    found = {}
    for name in _SETTINGS:
        try:
            found[name] = int(Path("/proc/sys", name).read_text("ascii"))
        except (OSError, ValueError):
            continue
    return found


def _has_cgroup() -> bool:
    group = make_run_cgroup(f"doctor-{os.getpid()}")
    if group is None:
        return False
    group.remove()
    return True


def _controllers() -> tuple[str, ...]:
    """Return the controllers that can count and limit in a run's cgroup.

    These are the controllers of our own cgroup.
    """
    group = make_run_cgroup(f"doctor-{os.getpid()}")
    if group is None:
        return ()
    try:
        return tuple((group.path.parent / "cgroup.controllers").read_text().split())
    except OSError:
        return ()
    finally:
        group.remove()


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _level(environ: Mapping[str, str]) -> Sandbox:
    try:
        return Sandbox(environ.get(LEVEL_VARIABLE) or DEFAULT_LEVEL)
    except ValueError:
        return DEFAULT_LEVEL


def _tried_out(directory: Path) -> str:
    """Write a trial file in *directory*; return why that failed, or empty.

    Permission bits do not tell: root passes them even where writing fails.
    """
    trial = directory / f".agentctl-doctor-{os.getpid()}"
    try:
        trial.mkdir(0o700)
    except OSError as error:
        return f"{directory} is not writable: {error.strerror}"
    try:
        with open(trial / "trial", "wb") as file:
            file.write(bytes(_TRIAL_BYTES))
    except OSError as error:
        return f"{directory} takes no files: {error.strerror}"
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return ""


def _state(environ: Mapping[str, str]) -> Path:
    path = state_root(environ)
    check_ours(path)
    return path


def _place(where: Callable[[], Path]) -> Place:
    try:
        path = where()
    except AgentctlError as error:
        return Place("", trouble=str(error))
    # If the path does not exist yet, it would be made in its nearest existing parent directory.
    there = next(one for one in (path, *path.parents) if one.exists())
    trouble = _tried_out(there) if there.is_dir() else f"{there} is not a directory"
    try:
        room = os.statvfs(there)
        free_bytes = room.f_bavail * room.f_frsize
    except OSError:
        free_bytes = 0
    return Place(os.fspath(path), path.exists(), trouble, _filesystem(there), free_bytes)


def _filesystem(path: Path) -> str:
    """Return the type of the file system that holds *path*, from ``/proc/self/mountinfo``."""
    try:
        device = os.stat(path).st_dev
        all_of_them = table()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}".encode()
    return next((one.kind for one in mounts(all_of_them) if one.device == wanted), "")


def _distributions() -> dict[str, str]:
    found = {}
    for name in ("agentctl-supervisor", "agentctl-child", "agentctl-protocol"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
