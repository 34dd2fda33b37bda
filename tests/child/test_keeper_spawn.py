"""From a request to a running agent: what it finds, and how it ends by itself."""

import contextlib
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.spawning import (
    Contained,
    Deadline,
    Exited,
    Kill,
    Order,
    Refused,
    Running,
)
from agentctl_protocol.vocabulary import Containment, Sandbox
from agentctl_testkit import descriptors
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit.spawner import RUN_UID, SpawnerStandIn

CONTAINMENTS = [
    pytest.param(Containment.PID_NAMESPACE, marks=needs(Capability.PID_NAMESPACE)),
    Containment.SUBREAPER,
]
both = pytest.mark.parametrize("containment", CONTAINMENTS)


@pytest.fixture(scope="module")
def spawner() -> Iterator[SpawnerStandIn]:
    with SpawnerStandIn() as started:
        yield started


@both
def test_says_contained_then_running_then_exited(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """A run that starts and ends says so in three packets, and its warden leaves."""
    packets = spawner.launch("/bin/true", containment=containment).drain()
    assert [type(packet) for packet in packets] == [Contained, Running, Exited]
    last = packets[2]
    assert isinstance(last, Exited)
    assert (last.code, last.signal) == (0, None)


@both
@pytest.mark.parametrize("what", [("echo", "begun"), ()], ids=["program", "function"])
def test_no_agent_begins_before_it_may(
    spawner: SpawnerStandIn, containment: Containment, what: tuple[str, ...]
) -> None:
    """Its supervisor has to write down first whom a stop must kill."""
    target = "" if what else "json:loads"
    run = spawner.launch(*what, target=target, containment=containment, begins=False)
    run.contained()
    with pytest.raises(TimeoutError):
        run.read(0.3)
    sources = [run.output, run.channel.descriptors[0]]
    assert select.select(sources, [], [], 0) == ([], [], [])
    os.write(run.begin, b"\0")
    run.running()
    assert select.select(sources, [], [], 20) != ([], [], [])
    with contextlib.suppress(BrokenPipeError):  # the program has ended by itself
        run.order(Kill())


@both
def test_no_agent_begins_without_its_supervisor(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """The end of the pipe from which the word would come ends the run."""
    run = spawner.launch("echo", "begun", containment=containment, begins=False)
    run.contained()
    os.close(run.begin)
    run.begin = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    assert run.output_bytes() == b""
    assert not any(isinstance(packet, Running) for packet in run.drain())


@both
@pytest.mark.parametrize("order", [Kill(), Deadline(after_s=0.1)])
def test_who_may_not_begin_yet_can_be_ended(
    spawner: SpawnerStandIn, containment: Containment, order: Order
) -> None:
    """The wait for the word is no wait for a kill, nor for the deadline."""
    run = spawner.launch("echo", "begun", containment=containment, begins=False)
    run.contained()
    run.order(order)
    assert run.output_bytes() == b""
    assert not run.exited().survivors


@both
def test_identities_and_pidfds_are_of_living_processes(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """Contained names warden and root, and brings a pidfd of each."""
    run = spawner.launch("sleep", "60", containment=containment)
    contained = run.contained()
    for identity, pidfd in zip((contained.warden, contained.root), run.pidfds, strict=True):
        line = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        assert f"Pid:\t{identity.pid}\n" in line
        started = Path(f"/proc/{identity.pid}/stat").read_text().rpartition(")")[2].split()[19]
        assert int(started) == identity.start_time
    assert (contained.namespace is not None) == (containment is Containment.PID_NAMESPACE)
    run.running()
    signal.pidfd_send_signal(run.pidfds[1], signal.SIGKILL)
    run.exited()


@both
@pytest.mark.parametrize("code", [0, 1, 2, 125, 255])
def test_reports_the_exit_code(
    spawner: SpawnerStandIn, containment: Containment, code: int
) -> None:
    """The agent's own exit code arrives as it was."""
    end = spawner.launch("sh", "-c", f"exit {code}", containment=containment).exited()
    assert (end.code, end.signal) == (code, None)


@both
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, 34])
def test_reports_the_signal(spawner: SpawnerStandIn, containment: Containment, number: int) -> None:
    """A signal that the agent died of is reported as one."""
    end = spawner.launch("sh", "-c", f"kill -{int(number)} $$", containment=containment).exited()
    assert (end.code, end.signal) == (None, number)


@both
def test_the_agents_exit_ends_what_it_leaves_behind(
    spawner: SpawnerStandIn, containment: Containment, marker: str
) -> None:
    """Nobody outlives the agent, and nobody waits for those who hold its pipes."""
    run = spawner.launch(
        "sh",
        "-c",
        "for i in 1 2 3; do setsid sleep 1000 & done; (sleep 1000 & exec sleep 1000) & exit 5",
        env={"AGENTCTL_TEST_MARKER": marker},
        containment=containment,
    )
    assert run.exited().code == 5


@both
def test_counts_what_the_whole_tree_used(spawner: SpawnerStandIn, containment: Containment) -> None:
    """CPU time and memory are of all processes of the run, reaped by whomever."""
    busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    end = spawner.launch("sh", "-c", f"({busy}) & {busy}; wait", containment=containment).exited()
    assert end.cpu_s > 0.05
    assert end.max_rss_bytes > 1 << 20


@both
def test_environment_is_exactly_what_was_asked_for(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """Two variables of ours are added, none is inherited."""
    run = spawner.launch("/usr/bin/env", "-0", env={"A": "1"}, containment=containment)
    run.exited()
    lines = sorted(run.output_bytes().decode().rstrip("\0").split("\0"))
    assert lines == [
        "A=1",
        "AGENTCTL_CHANNEL_FD=3,4",
        f"AGENTCTL_RUN_ID={run.run}",
        f"PATH={os.defpath}",
    ]


@both
def test_has_only_the_agreed_descriptors(spawner: SpawnerStandIn, containment: Containment) -> None:
    """0, 1, 2 and the channel are open; nothing of the keepers' is."""
    run = spawner.launch("ls", "-l", "/proc/self/fd", containment=containment)
    run.exited()
    # ls itself opens the directory, as the next free number.
    numbers = [line.split()[8] for line in run.output_bytes().decode().splitlines()[1:]]
    assert numbers == ["0", "1", "2", "3", "4", "5"]


@both
def test_signals_are_as_after_a_login(spawner: SpawnerStandIn, containment: Containment) -> None:
    """Nothing is blocked or ignored, though every keeper blocks everything."""
    run = spawner.launch(
        "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status", containment=containment
    )
    run.exited()
    masks = [int(line.split()[1], 16) for line in run.output_bytes().decode().splitlines()]
    # glibc's posix_spawn leaves its two internal signals, 32 and 33, ignored.
    assert [mask & ~0x1_8000_0000 for mask in masks] == [0, 0]


@both
def test_leads_a_session_of_its_own(spawner: SpawnerStandIn, containment: Containment) -> None:
    """The agent is a session leader: no terminal of ours can be its own."""
    run = spawner.launch("sh", "-c", "cut -d' ' -f1,5,6 /proc/$$/stat", containment=containment)
    run.exited()
    assert len(set(run.output_bytes().split())) == 1


@both
def test_stdin_is_what_was_given(spawner: SpawnerStandIn, containment: Containment) -> None:
    """The run reads from the descriptor that came with the request, up to its end."""
    reading, writing = os.pipe()
    os.write(writing, b"to the agent")
    os.close(writing)
    run = spawner.launch("cat", stdin=reading, containment=containment)
    os.close(reading)
    assert run.exited().code == 0
    assert run.output_bytes() == b"to the agent"


@both
def test_channel_reaches_the_agent_and_ends_with_it(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """The channel is two pipes straight to the agent; no keeper holds its ends open."""
    run = spawner.launch("sh", "-c", "cat <&3 >&4", containment=containment)
    run.running()
    run.channel.sendall(b"echo")
    assert run.channel.recv(100) == b"echo"
    run.channel.shut_writing()
    assert run.channel.recv(100) == b""
    assert run.exited().code == 0


@both
def test_umask_is_kept_and_directory_entered(
    spawner: SpawnerStandIn, containment: Containment, tmp_path: Path
) -> None:
    """The run starts in its directory, with the supervisor's umask."""
    tmp_path.chmod(0o777)
    run = spawner.launch("sh", "-c", "umask; pwd", cwd=str(tmp_path), containment=containment)
    run.exited()
    mask = os.umask(0o22)
    os.umask(mask)
    assert run.output_bytes().decode().split() == [f"{mask:04o}", str(tmp_path)]


@needs(Capability.PID_NAMESPACE)
def test_layers_of_a_pid_namespace(spawner: SpawnerStandIn) -> None:
    """What the kernel grants is what is reported, for this kind of user."""
    layers = spawner.launch("/bin/true").running().layers
    own = {"pid namespace", "mount namespace", "read-only /proc", "no new privileges"}
    if os.geteuid() == 0:
        assert set(layers) == own | {"reduced capabilities"}
    else:
        assert set(layers) == own | {"user namespace", "no capabilities", "process limit"}


@needs(Capability.LANDLOCK_SCOPE)
def test_layers_of_the_fallback(spawner: SpawnerStandIn) -> None:
    """The sealed fallback says what seals it, and does not claim a namespace."""
    layers = spawner.launch("/bin/true", containment=Containment.SUBREAPER).running().layers
    sealed = {
        "subreaper",
        "landlock domain",
        "landlock signal scope",
        "seccomp keeper filter",
        "no new privileges",
    }
    if os.geteuid() == 0:
        assert set(layers) == sealed | {"reduced capabilities"}
    else:
        assert set(layers) == sealed | {"no capabilities", "process limit"}


def test_unsealed_fallback_says_so(spawner: SpawnerStandIn) -> None:
    """Without the seal, the report carries the warning."""
    run = spawner.launch(
        "/bin/true", containment=Containment.SUBREAPER, sandbox=Sandbox.NONE, sealed=False
    )
    assert "agent can kill its keepers" in run.running().layers


@needs(Capability.ROOT)
@both
def test_root_can_give_a_run_its_own_uid(spawner: SpawnerStandIn, containment: Containment) -> None:
    """The agent is somebody else on the host, may read everything and change nothing."""
    run = spawner.launch(
        "sh",
        "-c",
        "id -u; id -G; cat /etc/shadow >/dev/null && echo read; echo x >>/etc/shadow",
        containment=containment,
        host_uid=RUN_UID,
    )
    layers = run.running().layers
    run.exited()
    assert run.output_bytes().decode().splitlines()[:3] == [str(RUN_UID), str(RUN_UID), "read"]
    assert {"own uid", "reduced capabilities"} <= set(layers)
    assert ("process limit" in layers) == (containment is Containment.SUBREAPER)


@needs(Capability.CGROUP2)
@both
def test_starts_in_its_cgroup(spawner: SpawnerStandIn, containment: Containment) -> None:
    """The run's processes are members of its cgroup from their first instruction on."""
    mount = cgroup2_mount()
    assert mount is not None
    directory = mount / f"agentctl-test-{os.getpid()}"
    directory.mkdir()
    try:
        cgroup = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        run = spawner.launch(
            "grep", "0::", "/proc/self/cgroup", cgroup=cgroup, containment=containment
        )
        os.close(cgroup)
        assert "cgroup" in run.running().layers
        run.drain()
        assert run.output_bytes().decode().strip().endswith(f"/{directory.name}")
    finally:
        directory.rmdir()


# --- refusals ---------------------------------------------------------------


@both
def test_refuses_a_program_that_is_not_there(
    spawner: SpawnerStandIn, containment: Containment
) -> None:
    """An unknown program is the caller's fault, and nothing else is said after that."""
    packets = spawner.launch("no-such-program", containment=containment).drain()
    refused = packets[-1]
    assert isinstance(refused, Refused)
    assert refused.fault == "not_found"
    assert refused.detail == "program not found: no-such-program"
    assert not any(isinstance(packet, Running | Exited) for packet in packets)


@both
def test_searches_the_runs_own_path(
    spawner: SpawnerStandIn, containment: Containment, tmp_path: Path
) -> None:
    """The PATH that counts is the run's, not the spawner's."""
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    path = f"/nonexistent:/proc/1/fd/0/x:{tmp_path}"
    run = spawner.launch("only-here", env={"PATH": path}, containment=containment)
    assert run.exited().code == 9


@both
def test_explains_what_cannot_be_executed(
    spawner: SpawnerStandIn, containment: Containment, tmp_path: Path
) -> None:
    """Each way in which a file is no program has its own sentence."""

    def refused(name: str, text: str, mode: int) -> Refused:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return spawner.launch(str(path), containment=containment).refused()

    plain = refused("plain", "#!/bin/sh\n", 0o644)
    assert (plain.fault, "not marked as executable" in plain.detail) == ("not_executable", True)
    rubbish = refused("rubbish", "no program", 0o755)
    assert (rubbish.fault, "neither a binary" in rubbish.detail) == ("not_executable", True)
    orphan = refused("orphan", "#!/no/such/interpreter -x\n", 0o755)
    assert orphan.fault == "not_found"
    assert "the run has no /no/such/interpreter, its interpreter" in orphan.detail
    folder = spawner.launch(str(tmp_path), containment=containment).refused()
    assert (folder.fault, "it is a directory" in folder.detail) == ("not_executable", True)


@both
def test_explains_what_is_too_long(spawner: SpawnerStandIn, containment: Containment) -> None:
    """An argument longer than the kernel takes is refused with the number that would fit."""
    refused = spawner.launch("/bin/true", "x" * (129 << 10), containment=containment).refused()
    assert refused.fault == "not_executable"
    assert refused.detail == "argument 1 is too long: 132,096 bytes"
    assert "131,072 bytes" in refused.hint
    many = spawner.launch("/bin/true", *["y" * 100_000] * 70, containment=containment).refused()
    assert (many.fault, "too long" in many.detail) == ("not_executable", True)


@both
def test_explains_a_missing_directory(spawner: SpawnerStandIn, containment: Containment) -> None:
    """A working directory that does not exist is named."""
    refused = spawner.launch("/bin/true", cwd="/no/such", containment=containment).refused()
    assert refused.fault == "system"
    assert refused.detail.startswith("the working directory /no/such cannot be entered")
    assert refused.hint


@pytest.mark.parametrize("raw", [b"", b"\xff" * 40, b"\x81\xa4type\xa6launch"])
def test_refuses_a_launch_that_is_none(spawner: SpawnerStandIn, raw: bytes) -> None:
    """A memfd full of rubbish ends that run, and no other."""
    assert spawner.launch("/bin/true", raw=raw).refused().fault == "system"
    assert spawner.launch("/bin/true").exited().code == 0


@pytest.mark.parametrize("text", ["nul\0byte", ""])
def test_refuses_what_exec_cannot_carry(spawner: SpawnerStandIn, text: str) -> None:
    """A NUL byte, or a variable without a name, is refused in words."""
    refused = spawner.launch("/bin/true", env={text: "x"}).refused()
    assert refused.fault == "system"


# --- the spawner itself -------------------------------------------------


def test_spawner_leaks_nothing(spawner: SpawnerStandIn) -> None:
    """After two hundred runs it has the descriptors, and the children, that it had before."""
    children = Path(f"/proc/{spawner.process.pid}/task/{spawner.process.pid}/children")
    spawner.launch("/bin/true").drain()
    before = _descriptor_count(spawner)
    for number in range(200):
        run = spawner.launch(
            "/bin/true" if number % 3 else "no-such-program",
            containment=list(Containment)[number % 2],
        )
        run.drain()
        run.close()
        spawner.runs.remove(run)
    deadline = time.monotonic() + 5
    while children.read_text():  # the last warden has said all, and is just about to be reaped
        assert time.monotonic() < deadline
        os.sched_yield()
    assert _descriptor_count(spawner) == before


def _descriptor_count(spawner: SpawnerStandIn) -> int:
    if os.geteuid() == 0:
        return len(descriptors(spawner.process.pid))
    # Not ours to list: it is not dumpable.  The kernel's table doubles when it overflows.
    status = Path(f"/proc/{spawner.process.pid}/status").read_text()
    return int(status.partition("FDSize:\t")[2].split()[0])


def test_spawner_survives_bad_requests(capfd: pytest.CaptureFixture[str]) -> None:
    """A packet that is no request, or lacks descriptors, harms no later run."""
    with SpawnerStandIn() as spawner:
        spawner.requests.send(b"\xc1")
        spawner.requests.send(b"\x82\xa4type\xadlaunch_packet\xa3run\xa1x")
        assert spawner.launch("/bin/true").exited().code == 0
    complaints = capfd.readouterr().err.splitlines()
    assert len(complaints) == 2
    assert all(line.startswith("agentctl spawner: a request was not") for line in complaints)


def test_spawner_forgets_its_environment() -> None:
    """What a forked agent reads in /proc/self/environ is not the supervisor's."""
    with SpawnerStandIn(env={"SUPERVISORS_SECRET": "s3cr3t"}) as spawner:
        if os.geteuid() == 0:
            assert b"s3cr3t" not in Path(f"/proc/{spawner.process.pid}/environ").read_bytes()
        run = spawner.launch(target="nowhere:nothing")
        contained = run.contained()
        run.running()
        title = Path(f"/proc/{contained.root.pid}/cmdline").read_bytes().rstrip(b"\0").decode()
        assert title == f"agentctl init {run.run}"
        run.channel.close()
        run.exited()


def test_spawner_is_single_threaded_and_untouchable(spawner: SpawnerStandIn) -> None:
    """It runs no thread, and its memory belongs to root alone."""
    pid = spawner.process.pid
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    assert os.stat(f"/proc/{pid}/mem").st_uid == 0
    assert stat.S_IMODE(os.stat(f"/proc/{pid}/mem").st_mode) == 0o600


@needs(Capability.USER_NAMESPACE)
def test_refuses_a_weaker_containment_than_was_asked_for() -> None:
    """Without pid namespaces the spawner says so at once, and such a run is refused in words."""
    program = (
        "from agentctl_testkit.spawner import RUN_UID, SpawnerStandIn\n"
        "with SpawnerStandIn() as spawner:\n"
        "    print(spawner.ready.pid_namespace)\n"
        "    print(spawner.launch('/bin/true').refused().detail)\n"
    )
    # A user namespace has limits of its own: in this one there are no pid namespaces.
    forbid = 'echo 0 >/proc/sys/user/max_pid_namespaces && exec "$@"'
    done = subprocess.run(
        ["unshare", "-U", "-r", "sh", "-c", forbid, "sh", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        capture_output=True,
        text=True,
        check=True,
    )
    why, detail = done.stdout.splitlines()
    assert why.startswith("the limit on namespaces is reached")
    assert detail == f"no pid namespace for the run: {why}"
