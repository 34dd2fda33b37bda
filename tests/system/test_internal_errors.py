"""An error of agentctl's own ends the run, or answers the client, in whose task it came up."""

import contextlib
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from agentctl_protocol.control import (
    MAX_CONTROL_FRAME,
    Failed,
    Ping,
    Pong,
    Reply,
    SignalRequest,
    StatusRequest,
    StopRequest,
)
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result, Sandbox, State
from agentctl_supervisor import Supervisor
from agentctl_supervisor.observe.list_runs import created_record, current_report
from agentctl_supervisor.run.internal_error import FILE_NAME
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import MARKER_VARIABLE, alive, new_marker
from agentctl_testkit.throwing import InjectedError, Throwing

TASKS = (
    "Climb.keep_time",
    "RunLog.keep_durable",
    "OutputPump.read",
    "Conversation.run",
    "ChannelPump._send_outbox",
    "Watch._keep_limit",
    "Run._bury_lingerer",
    "Keepers.follow",
    "Keepers._kill_unresponsive_warden",
    "Supervisor._live",
)
MOST_WAITS = 60
SLEEPS = ("/bin/sh", "-c", "trap 'exit 3' TERM; echo up; sleep 600 & wait")


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


async def _started(supervisor: Supervisor, marker: str) -> Run:
    spec = RunSpec(
        argv=SLEEPS,
        sandbox=Sandbox.BASIC,
        env={MARKER_VARIABLE: marker, "PATH": "/usr/bin:/bin"},
        time_s=600.0,
        grace_s=0.0,
        term_grace_s=0.5,
    )
    run = await supervisor.start(spec)
    await run.wait_started()
    return run


def _check_end(state: Home, run: Run, report: Report, marker: str) -> None:
    assert report.state is State.FINISHED
    assert (report.result, report.reason) in {
        (Result.FAILED, Reason.INTERNAL),
        (Result.STOPPED, Reason.CLIENT),
    }
    assert report.processes.survivors == 0
    assert alive(marker) == []
    directory = state.find(run.id)
    reader = LogReader(directory.path)
    assert sum(1 for _ in reader)
    assert not reader.damaged
    told = current_report(directory)
    assert (told.state, told.result) == (State.FINISHED, report.result)
    if report.reason is Reason.INTERNAL:
        assert str(directory.path / FILE_NAME) in report.detail
        assert InjectedError.__name__ in report.detail
        assert InjectedError.__name__ in (directory.path / FILE_NAME).read_text()


@pytest.mark.parametrize("task", TASKS)
async def test_an_error_at_any_wait_of_a_runs_tasks_ends_that_run_only(
    task: str, state: Home
) -> None:
    """It is killed and proven gone, its log is whole, and its neighbour never learns of it."""
    neighbours, thrown = new_marker(), 0
    async with Supervisor.open(state) as supervisor:
        neighbour = await _started(supervisor, neighbours)
        for at in range(1, MOST_WAITS):
            marker = new_marker()
            throwing = Throwing(task, at)
            trio.lowlevel.add_instrument(throwing)
            with trio.fail_after(60):
                run = await _started(supervisor, marker)
                report = await run.stop()
                assert await run.wait(durable=True) == report
                await run.wait_delivered()
            trio.lowlevel.remove_instrument(throwing)
            _check_end(state, run, report, marker)
            assert (neighbour.report.state, neighbour.report.result) == (State.RUNNING, None)
            if not throwing.reached:
                break
            thrown += throwing.thrown
        assert thrown
        assert (await neighbour.stop()).result is Result.STOPPED
    assert alive(neighbours) == []


def _said(path: str, request: Any) -> Reply | None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        frames, said = FrameBuffer(MAX_CONTROL_FRAME), None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # not heard at all
            connection.sendall(frame(msgspec.msgpack.encode(request)))
            while data := connection.recv(1 << 16):
                for body in frames.receive(data):
                    said = msgspec.msgpack.decode(body, type=Reply)
        return said


@pytest.mark.parametrize("kind", ["ping", "status", "signal", "stop"])
async def test_an_error_at_any_wait_for_a_client_concerns_that_client_only(
    kind: str, state: Home
) -> None:
    """It hears of it or of nothing; the next one is answered, and the run goes on."""
    async with Supervisor.open(state) as supervisor:
        neighbour = await _started(supervisor, marker := new_marker())
        created = created_record(state.find(neighbour.id))
        assert created is not None
        for at in range(1, MOST_WAITS):
            run = await _started(supervisor, new_marker())
            request = {
                "ping": Ping(),
                "status": StatusRequest(),
                "signal": SignalRequest(run.id),
                "stop": StopRequest(run.id),
            }[kind]
            throwing = Throwing("ControlServer._answer_client", at)
            trio.lowlevel.add_instrument(throwing)
            with trio.fail_after(60):
                said = await trio.to_thread.run_sync(_said, created.socket, request)
                trio.lowlevel.remove_instrument(throwing)
                if throwing.thrown and isinstance(said, Failed):
                    assert "InjectedError" in said.detail or kind == "signal"
                again = await trio.to_thread.run_sync(_said, created.socket, Ping())
                assert isinstance(again, Pong)
                await run.stop()
            assert (neighbour.report.state, neighbour.report.result) == (State.RUNNING, None)
            if not throwing.reached:
                assert at > 1
                break
    assert alive(marker) == []


async def test_an_error_in_a_stop_ends_the_run_and_not_who_asked(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for a stop gets the report of a run that is gone."""
    async with Supervisor.open(state) as supervisor:
        neighbour = await _started(supervisor, new_marker())
        run = await _started(supervisor, marker := new_marker())

        def fail(*_: object) -> None:
            raise InjectedError("in the ladder")

        monkeypatch.setattr(run._climb, "happen", fail)
        with trio.fail_after(30):
            report = await run.stop()
        _check_end(state, run, report, marker)
        assert neighbour.report.state is State.RUNNING
