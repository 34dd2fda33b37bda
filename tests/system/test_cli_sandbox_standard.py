"""What ``agentctl run`` gives a run at standard, where nothing can be mounted."""

import os
import socket
from collections.abc import Iterator

import pytest

from agentctl_testkit.audit import audit
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.sandbox import Sandboxed, sandboxed


@pytest.fixture(
    params=[
        pytest.param("root", marks=needs(Capability.ROOT, Capability.LANDLOCK_SCOPE)),
        pytest.param("user", marks=needs(Capability.ORDINARY_PYTHON, Capability.LANDLOCK_SCOPE)),
    ]
)
def caller(request: pytest.FixtureRequest) -> Iterator[Sandboxed]:
    wanted = request.getfixturevalue("installation") if request.param == "user" else None
    with sandboxed(wanted) as caller:
        yield caller
        assert audit(caller.directory) == []


def test_the_workspace_is_the_callers_afterwards(caller: Sandboxed) -> None:
    """Also what a run of root's made under a uid of its own."""
    done = caller.shell("pwd; mkdir -p a/b && echo it > a/b/made", level="standard")
    assert (done.code, done.out, done.err) == (0, f"{caller.workspace}\n", "")
    for made in ("a", "a/b", "a/b/made"):
        assert (caller.workspace / made).stat().st_uid == caller.uid


def test_nothing_else_of_the_callers_is_in_reach(caller: Sandboxed) -> None:
    """Landlock is the wall: files outside are there, and closed."""
    secret = caller.make("secret", "word")
    done = caller.run(
        *("run", "--sandbox", "standard", "--", "sh", "-c"),
        f"cat {secret}; ls {caller.directory}; echo x >> {secret}; echo $TOKEN; ls /tmp",
        environment={"TOKEN": "word"},
    )
    assert done.out == "\n"
    assert secret.read_text() == "word"


def test_home_and_tmp_are_its_own_and_go_with_it(caller: Sandboxed) -> None:
    """In its directory on disk, since there is no memory to mount."""
    done = caller.shell(
        "echo a > ~/left && mkdir $TMPDIR/closed && echo b > $TMPDIR/closed/left "
        "&& chmod 0 $TMPDIR/closed && echo $HOME $TMPDIR",
        level="standard",
    )
    home, temporary = done.out.split()
    assert os.path.dirname(os.path.dirname(home)) == str(caller.home.root / "runs")
    assert not os.path.exists(home)
    assert not os.path.exists(temporary)


def test_a_home_directory_is_no_workspace_here_either(caller: Sandboxed) -> None:
    """The fresh one stays, with what the run made in it."""
    words = ("run", "--sandbox", "standard", "--", "sh", "-c", "echo it > made; pwd")
    done = caller.run(*words, cwd=caller.directory)
    assert (done.code, done.err.splitlines()[1].strip()) == (0, done.out.strip())
    made = os.path.join(done.out.strip(), "made")
    assert os.stat(made).st_uid == caller.uid


def test_what_standard_cannot_protect_is_said(caller: Sandboxed) -> None:
    """A protected name before the run, by ``--explain``; one that it changed, in the report."""
    caller.make("workspace/.git/hooks/pre-commit", "old")
    told = caller.run("run", "--sandbox", "standard", "--explain", "-o", "json", "--", "true")
    assert told.json()["exposed"] == [{"path": ".git/hooks", "why": "standard cannot protect it"}]
    assert told.json()["protected"] == []
    done = caller.shell("echo new > .git/hooks/pre-commit", "--name", "x", level="standard")
    assert done.code == 0
    report = caller.run("show", "x", "-o", "json").json()
    assert report["workspace"]["exposed"] == [".git/hooks"]


def test_state_in_the_workspace_refuses_the_run(caller: Sandboxed) -> None:
    """What cannot be covered is not given away: it is for the caller to choose."""
    state = caller.make("workspace/state", mode=0o700)
    done = caller.run(
        *("run", "--sandbox", "standard", "--", "true"), environment={"AGENTCTL_HOME": str(state)}
    )
    assert done.code == 2
    assert "cannot be kept from a run" in done.err
    assert "hint: --workspace DIR without it, or --sandbox strict" in done.err


def test_there_is_no_socket_without_the_network(caller: Sandboxed) -> None:
    """A listener of the host's is in reach by name only."""
    code = "import socket; socket.create_connection(('127.0.0.1', {}), 5).sendall(b'hi')"
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = ("--", "python3", "-c", code.format(server.getsockname()[1]))
        done = caller.run("run", "--sandbox", "standard", *words)
        assert done.code == 1
        done = caller.run("run", "--sandbox", "standard", "--net", "host", *words)
        assert (done.code, done.err) == (0, "")
        with server.accept()[0] as connection:
            assert connection.recv(2) == b"hi"
