"""What a killed supervisor leaves of itself, and what is said of runs that are being pruned."""

import contextlib
import io
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError, NoSuchRunError
from agentctl_supervisor.export.bundle import write_bundle
from agentctl_supervisor.observe.follow import Following
from agentctl_supervisor.observe.list_runs import created_record, current_report
from agentctl_supervisor.observe.wait_runs import ends
from agentctl_supervisor.store.finished_index import INDEX_NAME
from agentctl_supervisor.store.pruning import remove
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_supervisor.store.socket_files import remove_if_dead
from agentctl_testkit import MARKER_VARIABLE, AgentctlHome, kill_all, wait_until_gone
from agentctl_testkit.held import HeldRun


@pytest.fixture
def supervisor(home: AgentctlHome, marker: str) -> Iterator[int]:
    """The pid of a detached run's supervisor; the run is called x."""
    done = home.run(
        *("run", "-d", "--name", "x", "--", "sleep", "100"),
        environment={MARKER_VARIABLE: marker},
    )
    assert done.code == 0, done.err
    (name,) = os.listdir(home.root / "run")
    yield int(name.partition("-")[0])
    kill_all(marker)


def _sockets(home: AgentctlHome) -> list[str]:
    return os.listdir(home.root / "run")


def _kill(supervisor: int, marker: str) -> None:
    pidfd = os.pidfd_open(supervisor)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    assert wait_until_gone(marker, within_s=30) == []


def test_recovery_removes_the_socket_of_a_dead_supervisor(
    home: AgentctlHome, supervisor: int, marker: str
) -> None:
    """Whoever finishes its run takes that away, too."""
    _kill(supervisor, marker)
    assert len(_sockets(home)) == 1
    assert home.run("show", "x", "-o", "json").json()["result"] == "lost"
    assert _sockets(home) == []


def test_prune_removes_sockets_that_no_run_tells_of(
    home: AgentctlHome, supervisor: int, marker: str
) -> None:
    """One that was killed before it had a run, or after; never one on which somebody listens."""
    _kill(supervisor, marker)
    dead = home.root / "run/4194303-1.sock"
    other = home.root / "run/other.sock"
    for path in (dead, other):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.fspath(path))
    alive = home.root / "run/4194303-2.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(alive))
        listening.listen()
        assert home.run("prune", "--keep", "0").code == 0
        assert sorted(_sockets(home)) == [alive.name, other.name]


def test_only_the_socket_of_a_dead_supervisor_is_removed(tmp_path: Path) -> None:
    """Neither a file of such a name, nor what a link leads to, nor one that is just being made."""
    file, link = tmp_path / "4194303-1.sock", tmp_path / "4194303-2.sock"
    file.touch()
    real = tmp_path / "real"
    with open("/proc/self/stat") as stat_file:
        started = stat_file.read().rpartition(")")[2].split()[19]
    new = tmp_path / f"{os.getpid()}-{started}.sock"
    for path in (real, new):
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.fspath(path))
    link.symlink_to(real)
    for path in (file, link, new):
        remove_if_dead(os.fspath(path))
    assert sorted(os.listdir(tmp_path)) == sorted((file.name, link.name, new.name, "real"))


_LOOKS: dict[str, Callable[[RunDirectory], object]] = {
    "show": current_report,
    "wait": lambda run: list(ends([run], None)),
    "export": lambda run: write_bundle(run, io.BytesIO()),
    "logs": lambda run: list(Following(run)),
    "logs -f": lambda run: list(Following(run, follow=True)),
    "stop": created_record,
    "rerun": RunDirectory.read_spec,
}


@pytest.mark.parametrize("look", _LOOKS.values(), ids=_LOOKS)
def test_a_run_that_is_pruned_meanwhile_is_no_such_run(
    home: AgentctlHome, look: Callable[[RunDirectory], object]
) -> None:
    """Whatever was found of it before: that is exit code 4, and no damage."""
    with HeldRun(home, "x") as held:
        pass
    found = Home.open({"AGENTCTL_HOME": str(home.root)}, create=False)
    directory = found.find(held.id)
    assert remove(found, held.id)
    with pytest.raises(NoSuchRunError, match=held.id) as caught:
        look(directory)
    assert caught.value.exit_code == 4


def test_a_bundle_of_a_run_that_is_pruned_meanwhile_is_none(home: AgentctlHome) -> None:
    """Rather than one in which the log is missing."""
    with HeldRun(home, "x") as held:
        pass
    found = Home.open({"AGENTCTL_HOME": str(home.root)}, create=False)
    directory = found.find(held.id)

    class Out(io.BytesIO):
        def write(self, data: object) -> int:
            with contextlib.suppress(NoSuchRunError):
                remove(found, held.id)
            return super().write(data)  # type: ignore[arg-type]

    out = Out()
    with pytest.raises(NoSuchRunError):
        write_bundle(directory, out)


def test_a_list_passes_over_what_is_gone(
    home: AgentctlHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the directory was read, and is no damage."""
    with HeldRun(home, "x") as held:
        pass
    found = Home.open({"AGENTCTL_HOME": str(home.root)}, create=False)
    directory, inodes = found.find(held.id), found.inodes()
    assert remove(found, held.id)
    monkeypatch.setattr(Home, "runs", lambda _: [directory])
    monkeypatch.setattr(Home, "inodes", lambda _: dict(inodes))
    monkeypatch.setattr(Home, "made", lambda *_: directory)
    (home.root / INDEX_NAME).unlink()
    damaged: list[AgentctlError] = []
    client = Client(home.root)
    assert client.runs(finished=True, on_damaged=damaged.append) == []
    assert client.listed(finished=True, on_damaged=damaged.append) == []
    assert damaged == []
