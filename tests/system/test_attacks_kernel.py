"""Group C: the kernel's surface.  What no agent needs of it is not there."""

import fcntl
import os
import secrets
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_testkit.attack_ipc import left_behind, plant_ipc_objects
from agentctl_testkit.attack_plant import Plant
from agentctl_testkit.attacks import (
    ROOT,
    STANDARD,
    STRICT,
    USER,
    AttackRange,
    Harmless,
    Probe,
    attack_files,
    limits_of_standard,
    params,
)
from agentctl_testkit.capabilities import Capability, cgroup2_mount

_F_OFD_SETLK: Final = 37


def _terminal(plant: Plant) -> Mapping[str, Any]:
    """A terminal of the caller's, into which the secret was typed."""
    master, slave = os.openpty()
    plant.undo.callback(os.close, master)
    plant.undo.callback(os.close, slave)
    os.fchown(slave, plant.caller.uid, -1)
    os.fchmod(slave, 0o600)
    os.write(master, f"{plant.token}\n".encode())
    return {"terminal": os.ttyname(slave)}


def _programs_with_privileges(plant: Plant) -> Mapping[str, Any]:
    """Root's in the caller's workspace: ``id`` setuid, and ``grep`` with CAP_SYS_PTRACE."""
    setuid, capable = plant.workspace / "setuid-id", plant.workspace / "capable-grep"
    shutil.copyfile(shutil.which("id") or "", setuid)
    shutil.copyfile(shutil.which("grep") or "", capable)
    setuid.chmod(0o4755)
    capable.chmod(0o755)
    # VFS_CAP_REVISION_2 with the effective bit
    os.setxattr(capable, "security.capability", struct.pack("<5I", 0x0200_0001, 1 << 19, 0, 0, 0))
    own = plant.workspace / "callers-setuid-id"
    shutil.copyfile(setuid, own)
    plant.own(own)
    own.chmod(0o4755)
    return {
        "setuid_program": str(setuid),
        "capable_program": str(capable),
        "callers_setuid_program": str(own),
    }


def _setuid_afterwards(plant: Plant) -> list[str]:
    """What of the attack's making is setuid now."""
    made = plant.workspace / "made-setuid"
    changed = Path(plant.facts["callers_setuid_program"])
    return [
        f"{path.name} is setuid"
        for path in (made, changed)
        if path.exists()
        and path.stat().st_mode & stat.S_ISUID
        and (path == made or path.read_bytes().startswith(b"#!"))
    ]


def _launcher(plant: Plant) -> Mapping[str, Any]:
    """A program of the caller's that is not in use."""
    launcher = plant.outside / "launcher"
    shutil.copyfile("/bin/true", launcher)
    launcher.chmod(0o755)
    plant.own(launcher)
    return {"launcher": str(launcher)}


def _cgroup(plant: Plant) -> Mapping[str, Any]:
    """A cgroup that is delegated to the caller."""
    root = cgroup2_mount()
    assert root is not None
    cgroup = root / f"agentctl-attack-{secrets.token_hex(6)}"
    cgroup.mkdir()
    plant.undo.callback(cgroup.rmdir)
    for path in (cgroup, cgroup / "cgroup.procs"):
        plant.own(path)
    return {
        "cgroup_root": str(root),
        "cgroup": str(cgroup),
        "cgroup1_roots": list(_version_1_roots()),
    }


def _version_1_roots() -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == "cgroup" and before.split()[3] == "/":
            yield before.split()[4]


def _disk(plant: Plant) -> Mapping[str, Any]:
    """Any disk of the host's."""
    disks = [p for p in Path("/dev").iterdir() if p.is_block_device() and "loop" not in p.name]
    return {"disk": str(min(disks, default=""))}


def _lock(plant: Plant) -> Mapping[str, Any]:
    """Locks of two kinds on a file that every run may read."""
    path = Path("/bin/true").resolve()
    file = plant.undo.enter_context(path.open("rb"))
    fcntl.flock(file, fcntl.LOCK_SH)
    fcntl.fcntl(file, _F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
    return {"locked": str(path)}


_ROUTE: Final = Harmless(
    "route",
    "answers about the run's own network namespace, which has nothing but loopback",
    (STRICT,),
)
_ADDRESSES: Final = Harmless(
    "no_randomize", "of the run's own programs only; debuggers and sanitizers ask for it"
)
_FILE_CAPABILITIES: Final = limits_of_standard(
    "CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH alone, for the caller's files in the workspace; "
    "Landlock is the wall around all others",
    *("permitted", "effective", "bounding"),
    callers=(ROOT,),
)
_BOUNDING: Final = Harmless(
    "bounding",
    "the caller's own, which nobody without CAP_SETPCAP can empty; only a setuid program or one "
    "with capabilities draws on it, and with no_new_privs none does",
    (STANDARD,),
    (USER,),
)
_STATISTICS: Final = limits_of_standard(
    "files of /proc for root alone, which Landlock cannot tell from the run's own there; they "
    "count, and hold neither content nor addresses that are not hashed",
    *("kpageflags", "slabinfo", "timer_list", "vmallocinfo"),
    callers=(ROOT,),
)
_SETUID_FILES: Final = (
    Harmless(
        "empty_file",
        "the run's own writes take the bit away, and what it leaves loses it when the run ends",
        callers=(ROOT,),
    ),
    Harmless(
        "change_in_memory",
        "a setuid program that the run was given to write to is the run's; the bit goes when the "
        "run ends, but where a file system does not note such a write (tmpfs)",
    ),
)
_LOCKS: Final = tuple(
    Harmless(
        variant,
        "whoever holds a lock on a file of the system's tells that it does, and who waits for "
        "such a lock waits; no namespace separates them, and without locks neither pip nor "
        "SQLite works",
    )
    for variant in ("flock", "record", "description")
)

PROBES: Final = (
    Probe("c01_io_uring"),
    Probe("c02_user_namespace", needs=(Capability.USER_NAMESPACE,)),
    Probe("c03_mounts", needs=(Capability.USER_NAMESPACE,)),
    Probe("c04_bpf", needs=(Capability.ROOT,)),
    Probe("c04_keyrings"),
    Probe("c04_machine"),
    Probe("c04_perf", needs=(Capability.COUNTERS,)),
    Probe("c04_userfaultfd"),
    Probe("c05_foreign_architecture"),
    Probe("c06_personality", harmless=(_ADDRESSES,)),
    Probe("c07_terminal", plant=_terminal),
    Probe("c08_socket_families", harmless=(_ROUTE,)),
    Probe(
        "c09_setuid_files",
        needs=(Capability.ROOT,),
        plant=_programs_with_privileges,
        check=_setuid_afterwards,
        seen=True,
        harmless=_SETUID_FILES,
    ),
    Probe("c10_capabilities", harmless=(*_FILE_CAPABILITIES, _BOUNDING)),
    Probe("c11_memfd_exec", needs=(Capability.USER_NAMESPACE,)),
    Probe("c12_overwrite_launcher", plant=_launcher),
    Probe("c13_leaked_descriptors"),
    Probe("c14_cgroups", needs=(Capability.CGROUP2,), plant=_cgroup),
    Probe("c15_kernel_settings", needs=(Capability.ROOT,)),
    Probe("c16_file_locks", plant=_lock, harmless=_LOCKS),
    Probe("c16_ipc_objects", plant=plant_ipc_objects, check=left_behind, seen=True),
    Probe("c17_kernel_memory", needs=(Capability.ROOT,), plant=_disk, harmless=_STATISTICS),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_the_kernel(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; the host is as it was."""
    attack_range.check(probe)


def test_every_attack_on_the_kernel_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("c") == {probe.name for probe in PROBES}
