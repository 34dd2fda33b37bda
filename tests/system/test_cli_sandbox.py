"""What ``agentctl run`` gives a run at strict, for root and for an ordinary user."""

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation
from agentctl_testkit.sandbox import Sandboxed, sandboxed


def test_a_program_runs_in_the_current_directory(caller: Sandboxed) -> None:
    """What it writes there is there afterwards, and its caller's."""
    done = caller.shell("pwd; echo it > made; ls -ln made | cut -d' ' -f3; id -u")
    directory, owner, uid = done.out.split()
    assert (done.code, done.err) == (0, "")
    assert directory == str(caller.workspace)
    assert owner == uid
    found = (caller.workspace / "made").stat()
    assert (found.st_uid, found.st_gid) == (caller.uid, caller.uid)


def test_it_sees_nothing_that_it_was_not_given(caller: Sandboxed) -> None:
    """Not its caller's home, not another directory of /tmp, not a variable."""
    caller.make("secret", "word")
    (Path("/tmp") / f"{caller.directory.name}-other").touch()
    done = caller.run(
        *("run", "--sandbox", "strict", "--", "sh", "-c"),
        "cat ../secret; ls /tmp/*-other; env; ls -A ~",
        environment={"TOKEN": "word"},
    )
    (Path("/tmp") / f"{caller.directory.name}-other").unlink()
    assert "word" not in done.out
    assert f"HOME={caller.directory}" in done.out
    assert f"PWD={caller.workspace}" in done.out
    assert "TMPDIR=/tmp" in done.out
    assert done.out.splitlines()[-1] == "workspace"


def test_variables_are_passed_by_name(caller: Sandboxed) -> None:
    """With the caller's value, or with one that is given; the record of the run has neither."""
    done = caller.run(
        *("run", "--sandbox", "strict", "--env", "TOKEN", "--env", "MODE=quick", "--name", "x"),
        *("--", "sh", "-c", "echo $TOKEN $MODE"),
        environment={"TOKEN": "s3cret"},
    )
    assert done.out == "s3cret quick\n"
    (kept,) = [path.read_text() for path in (caller.home.root / "runs").glob("*/spec")]
    assert "TOKEN" in kept
    assert "s3cret" not in kept
    assert "quick" not in kept
    again = caller.run("rerun", "x", environment={"TOKEN": "newer", "MODE": "slow"})
    assert again.out == "newer slow\n"
    warned = caller.run("rerun", "x", environment={"TOKEN": "newer"})
    assert warned.err.startswith("warning: not set here, but for x they were: MODE")


@contextlib.contextmanager
def _leased(path: Path) -> Iterator[None]:
    """Somebody outside holds a lease on *path*, and gives way to nobody."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with path.open() as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize(
    ("name", "code"), [(".git/config", 125), ("agentctl.toml", 2), (".bashrc", 0)]
)
def test_a_lease_holds_no_command_up_and_hides_nothing(
    caller: Sandboxed, name: str, code: int
) -> None:
    """What it keeps from being read refuses the run with the reason; the next one is protected."""
    caller.make("workspace/hooks/pre-commit", "")
    caller.make("workspace/.git/config", "[core]\n\thooksPath = hooks\n")
    if name != ".git/config":
        caller.make(f"workspace/{name}", "")
    script = "echo x >> hooks/pre-commit || echo refused"
    with _leased(caller.workspace / name):
        held = caller.shell(script)
    assert held.code == code, held
    if code:
        assert "lease" in held.err
        assert name in held.err
    assert caller.shell(script).out == "refused\n"
    assert (caller.workspace / "hooks/pre-commit").read_text() == ""


@pytest.mark.parametrize("level", ["strict", "standard"])
def test_fifos_are_made_where_nobody_outside_opens_them(caller: Sandboxed, level: str) -> None:
    """Not in the workspace, nor where ``--rw`` leads; and none is moved there."""
    shared = caller.make("shared")
    script = (
        f"for d in . {shared}; do mkfifo $d/fifo 2>&1 | grep -o 'Permission denied'; done; "
        "own=/dev/shm; mkfifo $own/fifo 2>/dev/null || { own=$TMPDIR; mkfifo $own/fifo; } "
        "&& echo made; mv $own/fifo . 2>/dev/null; find . -type p"
    )
    done = caller.shell(script, "--rw", str(shared), level=level)
    assert done.out.splitlines() == ["Permission denied"] * 2 + ["made"], done


def test_home_and_tmp_are_its_own(caller: Sandboxed) -> None:
    """It may fill them, and nothing of it reaches the host."""
    name = f"left-{caller.directory.name}"
    done = caller.shell(f"echo a > ~/left && echo b > /tmp/{name} && echo c > /var/tmp/{name}")
    assert done.code == 0, done.err
    assert not (caller.directory / "left").exists()
    assert not Path(f"/tmp/{name}").exists()


@pytest.mark.parametrize("home", ["/", "/dev", "/proc"])
def test_a_home_that_is_the_machines_is_another_one_inside(caller: Sandboxed, home: str) -> None:
    """Containers give a uid without an account the home ``/``."""
    words = ("run", "--sandbox", "strict", "--", "sh", "-c", "echo x > ~/made && echo $HOME")
    done = caller.run(*words, environment={"HOME": home})
    assert done.code == 0, done.err
    # Root has an account, which knows a better one.
    assert done.out.strip() in {"/home/agent", os.path.expanduser("~root")}


def test_a_home_directory_is_no_workspace(caller: Sandboxed) -> None:
    """It gets a fresh one, is told so, and finds its program from there."""
    caller.make("hello.py", "import os; print(os.getcwd()); open('made', 'w').write('x')")
    words = ("run", "--sandbox", "strict", "--name", "x", "--", "python3", "hello.py")
    done = caller.run(*words, cwd=caller.directory)
    assert done.code == 0, done.err
    fresh = Path(done.out.strip())
    assert fresh.parent.parent == caller.home.root / "runs"
    told = f"agentctl: {caller.directory} is a home directory; the run has a fresh workspace:"
    assert done.err == f"{told}\n  {fresh}\n"
    assert (fresh / "made").read_text() == "x"
    workspace = caller.run("show", "x", "-o", "json").json()["workspace"]
    assert (workspace["path"], workspace["private"]) == (str(fresh), True)
    assert caller.run(words[0], "-q", *words[1:], cwd=caller.directory).err == ""
    started = caller.run(words[0], "-d", *words[1:], cwd=caller.directory)
    assert started.err.startswith(told)
    assert caller.run("wait", "x").code == 0


def test_more_can_be_given_by_name(caller: Sandboxed) -> None:
    """``--ro`` to read, ``--rw`` also to write; a closed directory is as good as an open one."""
    data = caller.make("data", mode=0o700)
    caller.make("data/file", "content", mode=0o600)
    script = f"cat {data}/file; echo more > {data}/made"
    done = caller.shell(script, "--ro", str(data))
    assert done.out == "content"
    assert not (data / "made").exists()
    done = caller.shell(script, "--rw", "../data")
    assert (done.out, done.code) == ("content", 0)
    assert (data / "made").stat().st_uid == caller.uid
    assert caller.shell(script).out == ""


def test_protected_names_cannot_be_changed(caller: Sandboxed) -> None:
    """Nor moved away with what they lie in; what is beside them can."""
    hook = caller.make("workspace/.git/hooks/pre-commit", "#!/bin/sh\n", mode=0o755)
    caller.make("workspace/.git/config", "[core]\n")
    caller.make("workspace/.vscode/tasks.json", "{}")
    before = sorted(caller.workspace.rglob("*"))
    for attack in (
        "echo evil >> .git/hooks/pre-commit",
        "rm -f .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-commit",
        "mv .git/hooks .git/x",
        "mv .git elsewhere",
        "echo evil > .git/new && mv .git/new .git/config",
        "rm -rf .vscode",
        "chmod 777 .git/hooks",
    ):
        assert caller.shell(attack).code != 0, attack
    assert hook.read_text() == "#!/bin/sh\n"
    (caller.workspace / ".git/new").unlink()
    assert (
        caller.shell("echo x > .git/index && echo x > README && mkdir d && mv README d").code == 0
    )
    for made in (".git/index", "d/README", "d"):
        path = caller.workspace / made
        path.rmdir() if path.is_dir() else path.unlink()
    # No stub of a name that is not there.
    assert sorted(caller.workspace.rglob("*")) == before


def test_a_protected_name_is_opened_by_name(caller: Sandboxed) -> None:
    """Only that one."""
    hook = caller.make("workspace/.git/hooks/pre-commit", "old\n")
    caller.make("workspace/.git/config", "[core]\n")
    done = caller.shell(
        "echo new > .git/hooks/pre-commit; echo new > .git/config", "--unprotect", ".git/hooks"
    )
    assert done.code != 0
    assert hook.read_text() == "new\n"
    assert (caller.workspace / ".git/config").read_text() == "[core]\n"


def test_its_own_code_is_read_only(caller: Sandboxed) -> None:
    """A program, a script, a function: also in the workspace."""
    attack = "import sys; open(sys.argv[1] if sys.argv[1:] else __file__, 'a').write('#')"
    script = caller.make("workspace/agent.py", attack)
    program = caller.make("workspace/agent.sh", "#!/bin/sh\necho '#' >> agent.sh\n", mode=0o755)
    caller.make("workspace/pkg/__init__.py", "")
    module = caller.make(
        "workspace/pkg/mod.py", "def f():\n    with open(__file__, 'a') as file: file.write('#')\n"
    )
    before = [path.read_text() for path in (script, program, module)]
    strict = ("run", "--sandbox", "strict")
    for words in (
        (*strict, "--", "python3", "agent.py"),
        (*strict, "--", "./agent.sh"),
        (*strict, "pkg.mod:f"),
        (*strict, "pkg/mod.py:f"),
    ):
        done = caller.run(*words)
        assert done.code != 0, words
        assert "Read-only" in done.err, words
    assert [path.read_text() for path in (script, program, module)] == before


def test_state_in_the_workspace_is_hidden(caller: Sandboxed) -> None:
    """A run neither reads the records of runs nor reaches its supervisor's socket."""
    state = caller.make("workspace/deep/state", mode=0o700)
    there = {"AGENTCTL_HOME": str(state)}
    done = caller.run(
        *("run", "--sandbox", "strict", "--", "sh", "-c"),
        "ls -A deep/state; echo x > deep/state/made; mv deep other",
        environment=there,
    )
    assert done.out == ""
    assert done.code != 0
    assert not (state / "made").exists()
    assert (state / "runs").is_dir()


def test_an_interpreter_in_the_workspace_is_read_only(installation: Installation) -> None:
    """Whoever changes it, or agentctl in it, is the next supervisor."""
    with sandboxed(installation) as caller:
        theirs = installation.directory / "venv"
        inside = [theirs, theirs / "bin", *theirs.glob("lib/*/site-packages/agentctl_supervisor")]
        assert len(inside) == 3
        for path in inside:
            os.chown(path, caller.uid, caller.uid)
        os.chown(installation.directory, caller.uid, caller.uid)
        script = " && ".join(f"test ! -w {path}" for path in inside)
        done = caller.run(
            *("run", "--sandbox", "strict", "--", "sh", "-c", f"test -w . && {script}"),
            cwd=installation.directory,
            environment={"HOME": "/nonexistent"},
        )
        assert done.code == 0, done.err
        done = caller.run(*("run", "--sandbox", "strict", "--workspace", str(theirs), "--", "true"))
        assert done.code == 2
        assert "is agentctl's own, or its interpreter's" in done.err


test_an_interpreter_in_the_workspace_is_read_only = needs(
    Capability.ORDINARY_PYTHON, Capability.USER_NAMESPACE
)(test_an_interpreter_in_the_workspace_is_read_only)


def test_there_is_no_network_but_by_name(caller: Sandboxed) -> None:
    """A run that failed of that is told how it would get one."""
    code = "import socket; socket.create_connection(('127.0.0.1', {}), 5).sendall(b'hi')"
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = ("--", "python3", "-c", code.format(server.getsockname()[1]))
        done = caller.run("run", "--sandbox", "strict", *words)
        assert done.code == 1
        assert (
            done.err.splitlines()[-1] == "hint: the run had no network; --net host gives it yours"
        )
        assert "without a network" in done.err
        done = caller.run("run", "--sandbox", "strict", "--net", "host", "--name", "x", *words)
        assert (done.code, done.err) == (0, "")
        with server.accept()[0] as connection:
            assert connection.recv(2) == b"hi"
    assert caller.run("show", "x", "-o", "json").json()["network"] == "host"


def test_services_in_the_workspace_are_out_of_reach_but_by_name(caller: Sandboxed) -> None:
    """As ``--explain`` says; a socket of the run's own works, and what it left is no obstacle."""
    caller.make("workspace/run")
    script = (
        "import os, socket\n"
        "def reach(path):\n"
        "    with socket.socket(socket.AF_UNIX) as made:\n"
        "        try: made.connect(path)\n"
        "        except OSError as error: return type(error).__name__\n"
        "        return 'reached'\n"
        "print(reach('service'), reach('run/service'))\n"
        "os.rename('run', 'moved')\n"
        "print(reach('moved/service'))\n"
        "os.rename('moved', 'run')\n"
        "if os.path.exists('own'): os.unlink('own')\n"
        "own = socket.socket(socket.AF_UNIX)\n"
        "own.bind('own')\n"
        "own.listen()\n"
        "print(reach('own'))\n"
    )
    python = ("--", "python3", "-c", script)
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        for service, name in ((one, "service"), (other, "run/service")):
            service.bind(str(caller.workspace / name))
            service.listen()
            os.chown(caller.workspace / name, caller.uid, caller.uid)
        explained = caller.run("run", "--sandbox", "strict", "--explain", "--", "true").out
        assert "sockets of services" in explained
        done = caller.run("run", "--sandbox", "strict", *python)
        assert done.out.split() == [*["PermissionError"] * 3, "reached"]
        done = caller.run("run", "--sandbox", "strict", "--rw", "service", *python)
        assert done.out.split() == ["reached", *["PermissionError"] * 2, "reached"]
        done = caller.run("run", "--sandbox", "strict", "--net", "host", *python)
        assert done.out.split() == ["reached"] * 4


def test_a_socket_elsewhere_is_given_by_name(caller: Sandboxed) -> None:
    """As that of an agent that signs, whoever it belongs to: the caller may connect."""
    above = caller.make("services", mode=0o700)
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('in')"
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(above / "agent"))
        service.listen()
        os.chmod(above / "agent", 0o600)
        os.chown(above / "agent", caller.uid, caller.uid)
        python = ("--", "python3", "-c", connect, str(above / "agent"))
        done = caller.run("run", "--sandbox", "strict", "--rw", "../services/agent", *python)
        assert (done.out, done.code) == ("in\n", 0)
        assert caller.run("run", "--sandbox", "strict", *python).out == ""


def test_a_run_plants_no_link_for_the_next_one(caller: Sandboxed) -> None:
    """In the place of a script, of a directory that will be named, of an installation."""
    caller.make("secret/bin/tool", "echo word", mode=0o755)
    planted = (
        f"ln -s {caller.directory}/secret/bin/tool agent.sh; ln -s {caller.directory}/secret data;"
        f"mkdir -p v/bin; ln -s {caller.directory}/secret/bin/tool v/bin/tool"
    )
    assert caller.shell(planted).code == 0
    strict = ("run", "--sandbox", "strict")
    for words in (("--", "sh", "agent.sh"), ("--", "v/bin/tool"), ("--", "sh", "v/bin/tool")):
        done = caller.run(*strict, *words)
        assert done.code != 0
        assert "word" not in done.out
    for option in ("--ro", "--rw", "--workspace"):
        done = caller.run(*strict, option, "data", "--", "true")
        assert done.code == 2
        assert "data is a link that a run may have made" in done.err
        assert done.err.endswith(f"hint: if it is meant: {option} {caller.directory}/secret\n")


def test_a_failure_of_another_kind_gets_no_hint(caller: Sandboxed) -> None:
    """Only the word that there was no network."""
    done = caller.shell("exit 3")
    assert (done.code, len(done.err.splitlines())) == (3, 1)
    assert "failed (exit 3)" in done.err
    assert "without a network" in done.err
    assert caller.run("run", "-q", "--sandbox", "strict", "--", "false").err == ""


def test_a_workspace_elsewhere(caller: Sandboxed) -> None:
    """It begins there, and finds the script that was named from here."""
    caller.make("workspace/agent.py", "import os; print(os.getcwd(), os.path.isabs(__file__))")
    other = caller.make("other")
    done = caller.run(
        *("run", "--sandbox", "strict", "--workspace", "../other", "--", "python3", "agent.py")
    )
    assert done.out == f"{other} True\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workspace", "/"], "is the whole machine"),
        (["--workspace", "missing"], "is not there"),
        (["--workspace", "file"], "is not a directory"),
        (["--workspace", ".."], "is a home directory"),
        (["--workspace", "/usr/lib"], "is the system's"),
        (["--ro", "missing"], "No such file or directory"),
        (["--ro", "/"], "is too much"),
        (["--rw", ".."], "is too much"),
        (["--rw", "../state/runs"], "is where agentctl keeps its state"),
        (["--ro", "/dev/null"], "the run has a /dev of its own"),
        (["--ro", "socket"], "is a socket"),
        (["--ro", "fifo"], "neither a file nor a directory"),
        (["--ro", "."], "is to be writable and read-only at once"),
        (["--rw", "file", "--ro", "file"], "is to be writable and read-only at once"),
        (["--unprotect", ".git/hook"], "nothing protected is called"),
        (["--env", "NOT_SET_ANYWHERE"], "there is no variable"),
        (["--env", "=x"], "not a variable"),
        (["--net", "hots"], "no such network"),
        (["--sandbox", "stict"], "no such sandbox level"),
        (["--sandbox", "basic", "--net", "none"], "no wall"),
        (["--sandbox", "none", "--rw", "/srv"], "means nothing at none"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_given_is_a_usage_error(
    caller: Sandboxed, options: list[str], told: str
) -> None:
    """One line, a hint, exit code 2: for ``--explain`` as for a run, and no run is kept."""
    caller.make("workspace/file", "")
    os.mkfifo(caller.workspace / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(caller.workspace / "socket"))
    caller.run("run", "--sandbox", "strict", "--", "true")  # there is a state directory
    kept = len(list((caller.home.root / "runs").iterdir()))
    level = [] if "--sandbox" in options else ["--sandbox", "strict"]
    for more in ([], ["--explain"]):
        done = caller.run("run", *more, *level, *options, "--", "true")
        assert done.code == 2, done
        assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
        assert told in done.err
    assert len(list((caller.home.root / "runs").iterdir())) == kept
