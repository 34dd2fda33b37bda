"""At strict a run sees what it was given, writes where it may, and leaves nothing behind."""

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.messages import Hello, ResultMessage
from agentctl_protocol.spawning import Bind, Cover, Link, Scratch, Text
from agentctl_protocol.values import open_value
from agentctl_protocol.vocabulary import Network
from agentctl_testkit import alive, descriptors, wait_until_gone
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.sdk import AgentUnderTest
from agentctl_testkit.view import CALLERS, MEBIBYTE, Caller, in_order, mounts_of_runs, system


@pytest.fixture(scope="module", params=CALLERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    with Caller.open(request.param) as opened:
        yield opened


def words(text: str) -> set[str]:
    return set(text.split())


def test_a_program_runs_and_its_exit_is_told(caller: Caller) -> None:
    """The whole chain works, and brings back what it must."""
    assert caller.launch("/bin/true").exited().code == 0
    assert caller.launch("sh", "-c", "exit 7").exited().code == 7


def test_sees_the_view_and_nothing_else(caller: Caller) -> None:
    """What was not given is not there, however it is asked for."""
    secret = Path("/var/tmp") / f"agentctl-secret-{os.getpid()}"
    secret.write_text("s3cr3t")
    secret.chmod(0o644)
    try:
        said = caller.shell(
            f"cat {secret}; cat /proc/self/root{secret}; cat /proc/1/root{secret}; ls -A /"
        )
    finally:
        secret.unlink()
    assert "s3cr3t" not in said
    given = {part.path.split(b"/")[1].decode() for part in caller.view()}
    assert words(said.rpartition("denied")[2]) - {"directory"} == given | {"proc", "dev"}


def test_the_root_is_read_only(caller: Caller) -> None:
    """Nothing can be made in the root or in any directory that leads to a part."""
    said = caller.shell("touch /x; mkdir /usr/x; touch /dev/x; rmdir /usr; echo > /etc/passwd")
    assert said.count("Read-only") + said.count("busy") == 5


def test_proc_is_the_runs_own_and_read_only(caller: Caller) -> None:
    """Its own processes, no setting that can be written, and none of the kernel's secrets."""
    said = caller.shell(
        "ls /proc | grep -c '^[0-9]'; echo x > /proc/sys/kernel/core_pattern;"
        " echo 1000 > /proc/self/oom_score_adj;"
        " cat /proc/kallsyms /proc/keys /proc/key-users /proc/timer_list | wc -c"
    )
    assert int(said.split()[0]) <= 5
    assert said.count("Read-only file system") == 2
    assert said.split()[-1] == "0"


def test_dev_is_minimal_and_works(caller: Caller) -> None:
    """The devices that programs take for granted, and no hardware."""
    said = caller.shell(
        "ls /dev; ls -A /dev/pts /dev/shm; echo x > /dev/null; head -c 4 /dev/urandom | wc -c"
    )
    names = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    assert said.split() == [*names.split(), "/dev/pts:", "ptmx", "/dev/shm:", "4"]


def test_terminals_can_be_made(caller: Caller) -> None:
    """A run has pseudo-terminals of its own."""
    program = "import pty, os; a, b = pty.openpty(); print(os.ttyname(b))"
    assert caller.output("/usr/bin/python3", "-c", program) == "/dev/pts/0\n"


def test_what_it_writes_belongs_to_the_workspaces_owner(caller: Caller) -> None:
    """Inside the workspace is the run's, and outside it always was its owner's."""
    said = caller.shell(
        "touch made; mkdir -p deep/er; echo x > deep/er/file; stat -c %u . made; id -u"
    )
    assert words(said) == {str(caller.run_uid)}
    for name in ("made", "deep", "deep/er", "deep/er/file"):
        found = (caller.directory / name).stat()
        assert (found.st_uid, found.st_gid) == (caller.uid, caller.uid)


def test_others_files_stay_others(caller: Caller) -> None:
    """Only the owner's files change hands: what is root's is shown as root's, or as nobody's."""
    said = caller.shell("stat -c %u /usr /etc/passwd; touch /etc/passwd")
    assert words(said.split("touch")[0]) <= {"0", "65534"}


def test_a_protected_part_of_the_workspace(caller: Caller) -> None:
    """It can be read and not written, and neither it nor what leads to it can be moved away."""
    hooks = caller.make("repository/.git/hooks")
    caller.make("repository/.git/hooks/pre-commit", "echo checked\n")
    view = caller.view(
        Bind(path=os.fsencode(caller.directory / "repository"), writable=True, mapped=True),
        Bind(path=os.fsencode(hooks.parent), writable=True, mapped=True),
        Bind(path=os.fsencode(hooks), mapped=True),
    )
    said = caller.shell(
        "cd repository; cat .git/hooks/pre-commit; touch .git/index; ls .git;"
        "echo x > .git/hooks/pre-commit; rm -rf .git/hooks; mv .git/hooks .git/h; mv .git g;"
        "mv ../repository ../r; ln -s /tmp .git/hooks/l; ln .git/hooks/pre-commit .git/l;"
        "mkdir fake; mv -T fake .git",
        view=view,
    )
    assert "echo checked" in said
    assert "index" in said
    assert (hooks / "pre-commit").read_text() == "echo checked\n"
    assert sorted(os.listdir(hooks.parent)) == ["hooks", "index"]
    assert (caller.directory / "repository").is_dir()


def test_cover_text_link_and_scratch(caller: Caller) -> None:
    """The parts that are no files of the host's, over them and beside them."""
    secrets = caller.make("covered")
    caller.make("covered/key", "s3cr3t")
    key = caller.make("key", "s3cr3t")
    note = caller.make("note", "the host's")
    view = caller.view(
        Cover(path=os.fsencode(secrets)),
        Cover(path=os.fsencode(key)),
        Text(path=os.fsencode(note), data=b"the run's\n"),
        Text(path=b"/etc/hostname", data=b"elsewhere\n"),
        Text(path=b"/new/text", data=b"new\n"),
        Link(path=b"/new/link", target=b"text"),
        Scratch(path=b"/new/home", size_bytes=MEBIBYTE),
        Scratch(path=b"/home/somebody", size_bytes=MEBIBYTE),
        Cover(path=b"/home/somebody/covered"),
    )
    said = caller.shell(
        "ls covered; cat key note /etc/hostname /new/text /new/link; touch covered/x; echo x > key;"
        "echo x > note; cd /new/home; touch a; stat -c '%a %u' .; cd /home/somebody;"
        "touch covered/x; ls -A . covered",
        view=view,
    )
    assert "s3cr3t" not in said
    assert "the run's\nelsewhere\nnew\nnew\n" in said
    assert f"700 {caller.run_uid}" in said
    assert said.count("Read-only") == 4
    assert note.read_text() == "the host's"
    assert not os.path.exists("/new")


def test_scratch_has_its_size_and_a_bound_on_files(caller: Caller) -> None:
    """Neither bytes nor empty files can fill the machine's memory."""
    view = caller.view(Scratch(path=b"/scratch", size_bytes=MEBIBYTE))
    said = caller.shell(
        "head -c 3000000 /dev/zero > /scratch/big; stat -c %s /scratch/big; rm /scratch/big;"
        "seq -f /scratch/%g 400 | xargs touch 2>&1 | head -1; ls /scratch | wc -l",
        view=view,
    )
    assert said.count("No space left") == 2
    assert int(said.split()[-1]) < 300
    assert str(MEBIBYTE) in said


def test_a_part_beneath_a_scratch_and_beneath_a_cover(caller: Caller) -> None:
    """An interpreter or a workspace may lie beneath what is private to the run."""
    tool = caller.make("tools/deep")
    caller.make("tools/deep/tool", "a tool")
    view = in_order(
        [
            *system(),
            Scratch(path=os.fsencode(caller.directory), size_bytes=MEBIBYTE),
            Bind(path=os.fsencode(tool), mapped=True),
            Cover(path=b"/etc/ssl"),
            Bind(path=b"/etc/ssl/certs", optional=True),
        ]
    )
    said = caller.shell(
        "cat tools/deep/tool; touch tools/mine && echo made; ls /etc/ssl; touch /etc/ssl/x",
        view=view,
    )
    assert "a tool" in said
    assert "made" in said
    assert "Read-only" in said
    assert "certs" in said


def test_an_optional_part_that_is_missing_is_left_out(caller: Caller) -> None:
    """And one that is not optional refuses the run, by its name."""
    assert caller.shell("true", view=caller.view(Bind(path=b"/nowhere/x", optional=True))) == ""
    refused = caller.launch("/bin/true", view=caller.view(Bind(path=b"/nowhere/x"))).refused()
    assert refused.fault == "sandbox"
    assert "/nowhere/x cannot be made visible" in refused.detail
    assert refused.hint


def test_no_link_is_followed(caller: Caller) -> None:
    """A part on whose way somebody has put a symbolic link refuses the run, and makes nothing."""
    (caller.directory / "way").symlink_to("/etc")
    try:
        for part in (
            Bind(path=os.fsencode(caller.directory / "way/passwd")),
            Cover(path=os.fsencode(caller.directory / "way/passwd")),
            Text(path=os.fsencode(caller.directory / "way/new"), data=b"x"),
            Scratch(path=os.fsencode(caller.directory / "way"), size_bytes=4096),
        ):
            refused = caller.launch("/bin/true", view=caller.view(part)).refused()
            assert refused.fault == "sandbox"
            assert "way" in refused.detail
    finally:
        (caller.directory / "way").unlink()
    assert not os.path.exists("/etc/new")


def test_nothing_is_made_on_the_host_for_a_mount(caller: Caller) -> None:
    """A part for which there is no place in somebody else's directory refuses the run."""
    before = sorted(os.listdir(caller.directory))
    for part in (
        Scratch(path=os.fsencode(caller.directory / "none"), size_bytes=4096),
        Text(path=os.fsencode(caller.directory / "none"), data=b"x"),
        Link(path=os.fsencode(caller.directory / "none"), target=b"x"),
    ):
        refused = caller.launch("/bin/true", view=caller.view(part)).refused()
        assert (refused.fault, "none" in refused.detail) == ("sandbox", True)
    assert sorted(os.listdir(caller.directory)) == before


def test_no_mount_is_seen_outside_or_left(caller: Caller) -> None:
    """The host's mounts are the same during a run and after it."""
    before = mounts_of_runs(caller.directory)
    run = caller.launch("sh", "-c", "echo up; read line", stdin=None)
    run.running()
    assert mounts_of_runs(caller.directory) == before
    run.drain()
    assert mounts_of_runs(caller.directory) == before


def test_every_mount_of_the_hosts_is_restricted(caller: Caller) -> None:
    """No setuid program and no device works in any of them; only the workspace is writable."""
    lines = caller.shell("cat /proc/self/mountinfo").splitlines()
    assert len(lines) > 10
    for line in lines:
        before, _, after = line.partition(" - ")
        place, options = before.split()[4], before.split()[5].split(",")
        assert "nosuid" in options, line
        assert "nodev" in options or place.startswith(("/dev/", "/proc/")), line
        if after.split()[0] not in ("tmpfs", "devtmpfs", "devpts", "proc"):
            assert ("rw" in options) == (place == str(caller.directory)), line
    assert [line for line in lines if line.split()[4] == "/"] == [
        line for line in lines if line.split()[4] == "/" and " tmpfs agentctl " in line
    ]


def test_only_the_agreed_descriptors(caller: Caller) -> None:
    """stdin, stdout, stderr and the channel; nothing of what the mounts were made with."""
    run = caller.launch("ls", "/proc/self/fd")
    run.exited()
    assert run.output_bytes().split() == [b"0", b"1", b"2", b"3", b"4", b"5"]  # 5: its own
    held = caller.launch("sleep", "1000")
    init = held.contained().root.pid
    held.running()
    if os.geteuid() == 0:
        links = {number: link for number, link in descriptors(init).items() if number > 2}
        known = ("anon_inode:[pidfd]", "anon_inode:[signalfd]", "pipe:")
        assert {n: link for n, link in links.items() if not link.startswith(known)} == {}
    os.close(held.pidfds.pop())
    held.status.close()


def test_a_crash_leaves_no_core(caller: Caller) -> None:
    """No file, no pipe (a limit of 1 says so, core(5)), and no memory to whoever is asked still."""
    said = caller.shell(
        "ulimit -H -c; grep 'core file' /proc/self/limits; cat /proc/self/coredump_filter;"
        "sh -c 'kill -SEGV $$'; ls -A | grep -q '^core' && echo left;"
        "echo 33 > /proc/self/coredump_filter"
    )
    assert "Max core file size        1                    1 " in said
    assert "\n00000000\n" in said
    assert said.count("Read-only") == 1
    assert "left" not in said


def test_the_machines_name_is_not_told(caller: Caller) -> None:
    """Neither by uname nor to be changed."""
    assert caller.shell("uname -n") == "agentctl\n"
    assert socket.gethostname() != "agentctl"


def test_without_a_network_there_is_a_loopback(caller: Caller) -> None:
    """Its own programs can talk; the host's listener cannot be reached, by TCP or abstract name."""
    name = f"\0agentctl-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        abstract.bind(name)
        abstract.listen()
        program = (
            "import socket\n"
            "own = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(own.getsockname()).close()\n"
            "print(sorted(n for _, n in socket.if_nameindex()))\n"
            f"for f, a in ((socket.AF_INET, {server.getsockname()}), (socket.AF_UNIX, {name!r})):\n"
            "    try:\n"
            "        socket.socket(f).connect(a)\n"
            "        print('reached')\n"
            "    except OSError as e:\n"
            "        print(e.errno)\n"
        )
        said = caller.output("/usr/bin/python3", "-c", program)
    assert "reached" not in said
    assert said.startswith("['lo'")


def test_with_the_hosts_network_the_listener_is_reached(caller: Caller) -> None:
    """When it was asked for by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; socket.create_connection({server.getsockname()}); print('ok')"
        said = caller.output("/usr/bin/python3", "-c", program, network=Network.HOST)
    assert said == "ok\n"


def test_init_gives_nothing_away(caller: Caller) -> None:
    """The agent can neither read nor trace the process that holds its order line."""
    program = (
        "import ctypes\n"
        "for name in ('mem', 'environ', 'maps', 'fd/0'):\n"
        "    try:\n"
        "        open(f'/proc/1/{name}', 'rb').read(1); print('read', name)\n"
        "    except OSError as error: print(error.errno)\n"
        "print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))\n"
    )
    assert caller.output("/usr/bin/python3", "-c", program).split() == ["13"] * 4 + ["-1"]


@pytest.mark.parametrize("interpreter", ["", "--python"])
def test_a_function_runs(caller: Caller, interpreter: str) -> None:
    """A callable, called by the spawner's fork or another interpreter, imports from the view."""
    caller.make(
        f"work{interpreter.strip('-')}.py",
        "import os, sqlite3, decimal\n"
        "def main(run):\n"
        "    import wave, asyncio\n"
        "    open('written', 'w').write('x')\n"
        "    return [os.getcwd(), os.getuid(), wave.__name__]\n",
    )
    target = f"{caller.directory}/work{interpreter.strip('-')}.py:main"
    run = caller.launch(target=target, python=caller.python if interpreter else "")
    run.running()
    agent = AgentUnderTest(None, run.channel)  # type: ignore[arg-type]
    agent.begin(target, paths=[str(caller.directory)])
    result = agent.hear(ResultMessage)
    assert isinstance(agent.of(Hello)[0], Hello)
    assert open_value(result.value) == [str(caller.directory), caller.run_uid, "wave"]
    assert run.exited().code == 0
    assert (caller.directory / "written").stat().st_uid == caller.uid


def test_init_can_tell_how_the_agent_ended(caller: Caller) -> None:
    """It is of one uid with it, which could leave it no descriptors, no time and no hurry."""
    program = (
        "import os, resource as r, sys\n"
        "for act in (\n"
        "    lambda: r.prlimit(1, r.RLIMIT_NOFILE, (0, 0)),\n"
        "    lambda: r.prlimit(1, r.RLIMIT_CPU, (0, 0)),\n"
        "    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),\n"
        "    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),\n"
        "    lambda: os.setpriority(os.PRIO_USER, 0, 19),\n"
        "):\n"
        "    try:\n"
        "        act()\n"
        "    except OSError:\n"
        "        continue\n"
        "    sys.exit(1)\n"
        "sys.exit(42)\n"
    )
    assert caller.launch(caller.python, "-I", "-S", "-c", program).exited().code == 42


def test_the_wardens_death_ends_the_run(caller: Caller, marker: str) -> None:
    """A stopped init can watch nobody; its parent-death signal was armed again after the uid."""
    run = caller.launch("sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker})
    run.running()
    assert alive(marker)
    signal.pidfd_send_signal(run.pidfds[1], signal.SIGSTOP)
    signal.pidfd_send_signal(run.pidfds[0], signal.SIGKILL)
    assert not wait_until_gone(marker, within_s=5)


@needs(Capability.ROOT)
def test_umask_of_the_caller_does_not_close_the_view(tmp_path: Path) -> None:
    """A root with umask 077 makes a root that its run can read."""
    mask = os.umask(0o077)
    try:
        with Caller.open("root") as caller:
            said = caller.shell(
                "cat /note; ls /; umask", view=caller.view(Text(path=b"/note", data=b"x\n"))
            )
    finally:
        os.umask(mask)
    assert said.startswith("x\n")
    assert said.endswith("0077\n")


@needs(Capability.ROOT, Capability.PID_NAMESPACE)
def test_root_closed_home_is_open_for_what_was_given() -> None:
    """What lies below a directory that only root may enter is there for a run of another uid."""
    with Caller.open("root") as caller:
        code = caller.make("closed/code")
        caller.make("closed/code/secret.py", "print('mine')").chmod(0o600)
        (caller.directory / "closed").chmod(0o700)
        view = in_order([*system(), *caller.kept, Bind(path=os.fsencode(code), mapped=True)])
        said = caller.shell(
            f"/usr/bin/python3 {code}/secret.py; touch {code}/x", view=view, cwd="/"
        )
    assert said.startswith("mine\n")
    assert "Read-only" in said
    assert stat.S_IMODE(os.stat("/").st_mode) & 0o055
