"""An agent cannot stop, trace, read, starve or signal those who can end it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.vocabulary import Containment, Sandbox
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit.spawner import RUN_UID, LaunchedRun, SpawnerStandIn

#: Tries everything on each target, harmlessly where it can; prints {"target attack": "errno"}.
ATTACKER = r"""
import ctypes, fcntl, json, os, signal, socket, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
PEEK = ctypes.create_string_buffer(8)


def call(number, *arguments):
    longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *longs) < 0:
        raise OSError(ctypes.get_errno(), "")


def own(pid, command):
    left, right = socket.socketpair()
    fcntl.fcntl(left, 10, signal.SIGSTOP)
    fcntl.fcntl(left, command, pid)
    fcntl.fcntl(left, fcntl.F_SETFL, fcntl.fcntl(left, fcntl.F_GETFL) | os.O_ASYNC)
    right.send(b"x")


def own_by_ioctl(pid):
    left, right = socket.socketpair()
    fcntl.ioctl(left, 0x8901, struct.pack("i", pid))


def vector():
    return struct.pack("QQ", ctypes.addressof(PEEK), 8)


ATTACKS = {
    "kill": lambda p: os.kill(p, signal.SIGSTOP),
    "kill group": lambda p: os.kill(-p, signal.SIGSTOP),
    "tgkill": lambda p: call(234, p, p, int(signal.SIGSTOP)),
    "tkill": lambda p: call(200, p, int(signal.SIGSTOP)),
    "sigqueue": lambda p: call(129, p, int(signal.SIGSTOP), ctypes.create_string_buffer(
        struct.pack("iii", int(signal.SIGSTOP), 0, -1), 128)),
    "pidfd signal": lambda p: signal.pidfd_send_signal(os.pidfd_open(p), signal.SIGSTOP),
    "pidfd getfd": lambda p: call(438, os.pidfd_open(p), 0, 0),
    "ptrace seize": lambda p: call(101, 0x4206, p, 0, 0),
    "ptrace attach": lambda p: call(101, 16, p, 0, 0),
    "read memory": lambda p: call(310, p, vector(), 1, vector(), 1, 0),
    "limit cpu": lambda p: call(302, p, 0, struct.pack("QQ", 3600, 3600), None),
    "own socket": lambda p: own(p, 8),
    "own socket by ioctl": own_by_ioctl,
    "affinity": lambda p: os.sched_setaffinity(p, [0]),
    "idle class": lambda p: os.sched_setscheduler(p, os.SCHED_IDLE, os.sched_param(0)),
    "priority": lambda p: os.setpriority(os.PRIO_PROCESS, p, 19),
    "open memory": lambda p: open(f"/proc/{p}/mem", "r+b").close(),
    "open descriptor": lambda p: os.open(f"/proc/{p}/fd/0", os.O_RDONLY),
    "environment": lambda p: open(f"/proc/{p}/environ", "rb").read(),
    "make killable": lambda p: open(f"/proc/{p}/oom_score_adj", "w").write("1000"),
}

if os.getpid() == 2:
    targets = {"init": 1}
else:
    warden = os.getppid()
    spawner = int(open(f"/proc/{warden}/stat").read().rpartition(")")[2].split()[1])
    targets = {"warden": warden, "spawner": spawner, "supervisor": int(sys.argv[1])}
result = {}
for name, pid in targets.items():
    for attack, act in ATTACKS.items():
        try:
            act(pid)
            result[f"{name}: {attack}"] = "worked"
        except OSError as error:
            result[f"{name}: {attack}"] = error.errno
for attack, act in {
    "everybody": lambda: os.kill(-1, 0),
    "everybody's priority": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "unmount /proc": lambda: call(166, b"/proc", 2),
    "write /proc": lambda: open("/proc/sys/kernel/core_pattern", "w").close(),
}.items():
    try:
        act()
        result[attack] = "worked"
    except OSError as error:
        result[attack] = error.errno
print(json.dumps(result))
sys.exit(42)
"""

#: What one may do to init and its like, as to oneself: it harms only the run.
HARMLESS_ON_INIT = {
    # The kernel drops every signal from inside to a pid 1 that does not handle it.
    *("kill", "tgkill", "tkill", "sigqueue", "pidfd signal"),
    *("own socket", "own socket by ioctl", "limit cpu", "affinity", "idle class", "priority"),
}


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a process group of its own, to be attacked in the supervisor's place."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


def attack(
    spawner: SpawnerStandIn, supervisor: subprocess.Popen[bytes], **how: object
) -> dict[str, object]:
    """What became of each attack; the run must have ended in the ordinary way."""
    run: LaunchedRun = spawner.launch(
        sys.executable,
        "-I",
        "-S",
        "-c",
        ATTACKER,
        str(supervisor.pid),
        **how,  # type: ignore[arg-type]
    )
    end = run.exited()
    text = run.output_bytes()
    assert end.code == 42, (end, text)
    result: dict[str, object] = json.loads(text)
    assert state(spawner.process.pid) not in "Tt"
    assert state(supervisor.pid) not in "Tt"
    return result


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "X"


@needs(Capability.PID_NAMESPACE)
def test_init_is_out_of_reach(supervisor: subprocess.Popen[bytes]) -> None:
    """Inside the namespace, only what harms the agent itself works on pid 1."""
    with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
        result = attack(spawner, supervisor)
    worked = {name.removeprefix("init: ") for name, end in result.items() if end == "worked"}
    assert worked <= HARMLESS_ON_INIT | {"everybody", "everybody's priority"}


@needs(Capability.LANDLOCK_SCOPE)
@pytest.mark.parametrize("own_uid", [False, pytest.param(True, marks=needs(Capability.ROOT))])
def test_keepers_are_sealed_off(supervisor: subprocess.Popen[bytes], own_uid: bool) -> None:
    """In the sealed fallback every attack on warden, spawner and supervisor is refused."""
    with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
        result = attack(
            spawner,
            supervisor,
            containment=Containment.SUBREAPER,
            host_uid=RUN_UID if own_uid else None,
        )
    worked = {name for name, end in result.items() if end == "worked"}
    # It is a dumpable process of the same user: only the keepers proper are not.
    worked -= {"supervisor: make killable"}
    if os.geteuid() == 0 and not own_uid:
        # Root without a uid of its own has root's files; the report says no more than it is.
        worked -= {"write /proc"}
        worked = {name for name in worked if "killable" not in name}
    assert worked == set()


def test_without_the_seal_they_are_not(supervisor: subprocess.Popen[bytes]) -> None:
    """The control: the same attacks work where the report says that they do."""
    with SpawnerStandIn() as spawner:
        victim = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        run = spawner.launch(
            "sh",
            "-c",
            f"kill -STOP {victim.pid} && kill -KILL {supervisor.pid} && echo worked",
            containment=Containment.SUBREAPER,
            sandbox=Sandbox.NONE,
            sealed=False,
        )
        assert "agent can kill its keepers" in run.running().layers
        run.exited()
        assert run.output_bytes() == b"worked\n"
        victim.kill()
        victim.wait()
        assert supervisor.wait() == -signal.SIGKILL


@needs(Capability.ROOT, Capability.CGROUP2, Capability.LANDLOCK_SCOPE)
def test_a_sealed_agent_freezes_no_group_that_it_may_write_to() -> None:
    """Control groups that were delegated to the agent's user are out of its reach, too."""
    mount = cgroup2_mount()
    assert mount is not None
    group = mount / f"agentctl-test-{os.getpid()}"
    group.mkdir()
    try:
        freeze = group / "cgroup.freeze"
        freeze.chmod(0o666)
        with SpawnerStandIn() as spawner:
            script = f"echo 0 > /dev/null && echo 1 > {freeze}"
            run = spawner.launch(
                "sh", "-c", script, containment=Containment.SUBREAPER, host_uid=RUN_UID
            )
            assert run.exited().code != 0
        assert freeze.read_text() == "0\n"
    finally:
        group.rmdir()
