"""The control socket: who waits on it holds up nobody else, and what stands in its way is said."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
import trio

from agentctl_protocol.control import Failed, Pong, StopRequest
from agentctl_protocol.framing import frame
from agentctl_protocol.records import Created
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.client import Client, answers
from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.observe.list_runs import created_record
from agentctl_supervisor.processes.process_tree import boot_id, identity_of
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome
from agentctl_testkit.held import HeldRun

CLIENTS = 300
SO_PASSRIGHTS = 83
STUBBORN = RunSpec(
    argv=("/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 60; done"), term_grace_s=60
)


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


SLOW_SUPERVISOR = """
import socket, sys, time

path, how = sys.argv[1:]
with socket.create_server(path, family=socket.AF_UNIX) as server:
    print("up", flush=True)
    connection, _ = server.accept()
    with connection:
        request = connection.recv(4096)
        end = time.monotonic() + 1.5
        while how == "busy" and time.monotonic() < end:
            pass
        if how == "asleep":
            sys.stdin.read()
        connection.sendall(bytes.fromhex(sys.stdin.readline()))
"""


def _created(state: Home, run_id: str) -> Created:
    created = created_record(state.find(run_id))
    assert created is not None
    return created


async def test_many_who_wait_for_a_stop_leave_room_for_a_ping(state: Home) -> None:
    """A supervisor with 300 stops in hand answers, and so is not taken for stuck."""
    async with Supervisor.open(state) as supervisor, trio.open_nursery() as nursery:
        up = trio.Event()

        async def hear(_stream: str, _data: bytes) -> None:
            up.set()

        run = await supervisor.start(STUBBORN, on_output=hear)
        await up.wait()
        created, connections = _created(state, run.id), list[trio.SocketStream]()
        request = frame(msgspec.msgpack.encode(StopRequest(run.id)))
        for _ in range(CLIENTS):
            connection = await trio.open_unix_socket(created.socket)
            nursery.start_soon(connection.send_all, request)
            connections.append(connection)
        with trio.fail_after(10):
            # They are heard in the order in which they came: the ping last.
            assert await trio.to_thread.run_sync(answers, created)
            assert (await run.kill()).result is Result.STOPPED
        for connection in connections:
            await connection.aclose()


@pytest.mark.parametrize(("how", "answered"), [("busy", True), ("asleep", False)])
def test_who_runs_is_slow_and_who_sleeps_is_stuck(tmp_path: Path, how: str, answered: bool) -> None:
    """A supervisor that the machine starves is waited for; one that is blocked is not."""
    path = str(tmp_path / "control")
    pong = frame(msgspec.msgpack.encode(Pong(version=1, pid=1)))
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_SUPERVISOR, path, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "up\n"
        if how == "busy":
            supervisor.stdin.write(pong.hex() + "\n")
            supervisor.stdin.flush()
        who = identity_of(supervisor.pid)
        assert who is not None
        created = Created(supervisor=who, boot_id=boot_id(), socket=path)
        try:
            assert answers(created) is answered
        finally:
            supervisor.kill()


def test_a_run_that_is_over_before_its_supervisor_is_asked_was_so_already(tmp_path: Path) -> None:
    """It has forgotten the run by then: that is no stop of ours."""
    home = AgentctlHome(tmp_path / "home")
    path = str(tmp_path / "control")
    with socket.create_server(path, family=socket.AF_UNIX) as server:

        def supervise(run: HeldRun) -> None:
            # A ping, and then the stop.
            for reply in (Pong(version=1, pid=1), Failed("no such run here", no_such_run=True)):
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    if isinstance(reply, Failed):
                        run.finish()
                    connection.sendall(frame(msgspec.msgpack.encode(reply)))

        with HeldRun(home, "demo", socket=path) as run:
            supervisor = threading.Thread(target=supervise, args=(run,))
            supervisor.start()
            outcome = Client(home.root).stop("demo")
            supervisor.join(20)
    assert (outcome.already, outcome.gone) == (True, True)


async def test_two_supervisors_of_one_process_have_a_socket_each(state: Home) -> None:
    """Both are reached, and the end of one leaves the other's socket alone."""
    async with Supervisor.open(state) as one:
        run = await one.start(STUBBORN)
        async with Supervisor.open(state) as other:
            others = await other.start(STUBBORN)
            both = [_created(state, run.id), _created(state, others.id)]
            assert both[0].socket != both[1].socket
            for created in both:
                assert await trio.to_thread.run_sync(answers, created)
            await others.kill()
        assert await trio.to_thread.run_sync(answers, _created(state, run.id))
        await run.kill()


async def test_no_place_for_the_socket_is_the_documented_error(state: Home) -> None:
    """Not a group of exceptions, in which nobody looks for it."""
    (state.root / "run").touch()
    with pytest.raises(StateDirectoryError):
        async with Supervisor.open(state):
            pass


async def test_a_listener_that_goes_away_holds_up_no_stop(state: Home) -> None:
    """Who closes its end of the steps changes nothing about the stop that it watches."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(RunSpec(argv=("sleep", "60")))
        await run.wait_started()
        with run.listen() as steps:
            steps.close()
            with trio.fail_after(10):
                assert (await run.stop()).result is Result.STOPPED


async def test_descriptors_sent_to_it_are_refused_where_the_kernel_can(state: Home) -> None:
    """Whoever received one would have to close it.  Before Linux 6.16 they are dropped."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(STUBBORN)
        created = _created(state, run.id)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(created.socket)
            try:
                client.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS)
            except OSError:
                return
            with pytest.raises(PermissionError):
                socket.send_fds(client, [b"x"], [client.fileno()])
        assert await trio.to_thread.run_sync(answers, created)
        await run.kill()
