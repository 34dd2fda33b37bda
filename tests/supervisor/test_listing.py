"""A list of many runs: who is asked, what is read, and what is true when nobody answers."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agentctl_protocol.control import MAX_CONTROL_FRAME, Statuses, StatusRequest
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.records import Stop
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.vocabulary import Reason, Result, State
from agentctl_supervisor.client import Client
from agentctl_supervisor.control import status_query
from agentctl_testkit import AgentctlHome
from agentctl_testkit.held import HeldRun


@contextlib.contextmanager
def _answering(path: Path, *reports: Report, piece: int = 1 << 20) -> Iterator[list[StatusRequest]]:
    """A supervisor's socket that answers each request with *reports*, in pieces."""
    heard: list[StatusRequest] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                (body,) = FrameBuffer().receive(connection.recv(1 << 16))
                heard.append(msgspec.msgpack.decode(body, type=StatusRequest))
                data = frame(msgspec.msgpack.encode(Statuses(reports)), MAX_CONTROL_FRAME)
                for at in range(0, len(data), piece):
                    connection.sendall(data[at : at + piece])

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _report(run: HeldRun, detail: str) -> Report:
    known = Client(run.directory.path.parent.parent).show(run.id)
    return msgspec.structs.replace(known, detail=detail)


def test_a_supervisor_is_asked_once_for_all_its_runs(home: AgentctlHome, tmp_path: Path) -> None:
    """One request for brief reports; what it says of live runs is believed, logs are not read."""
    path = tmp_path / "s"
    with HeldRun(home, socket=str(path)) as one, HeldRun(home, socket=str(path)) as two:
        answers = [_report(run, f"told by its supervisor {run.id}") for run in (one, two)]
        with _answering(path, *answers, piece=7) as heard:
            rows = Client(home.root).listed()
    assert [getattr(row, "detail", "") for row in rows] == [answer.detail for answer in answers]
    assert heard == [StatusRequest(brief=True)]


@pytest.mark.parametrize("kind", ["missing", "mute", "other runs"])
def test_who_does_not_answer_is_known_from_the_log(
    home: AgentctlHome, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen supervisor, one that is just going, and one that says nothing of this run."""
    monkeypatch.setattr(status_query, "PING_TIMEOUT_S", 0.1)
    path = tmp_path / "s"
    with HeldRun(home, "demo", socket=str(path)) as run, contextlib.ExitStack() as stack:
        if kind == "mute":
            mute = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            mute.bind(str(path))
            mute.listen()
        elif kind == "other runs":
            other = msgspec.structs.replace(_report(run, ""), id="r-aaaaaaaa")
            stack.enter_context(_answering(path, other))
        (row,) = Client(home.root).listed()
    assert (row.id, row.name, row.state) == (run.id, "demo", State.RUNNING)


def test_an_intent_shows_though_the_supervisor_does_not_know_it(
    home: AgentctlHome, tmp_path: Path
) -> None:
    """It was frozen when somebody stopped the run: `stopping` is the truth."""
    path = tmp_path / "s"
    with HeldRun(home, socket=str(path)) as run:
        answer = _report(run, "")
        run.directory.write_intent(
            Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 0, 0, intent=True)
        )
        with _answering(path, answer):
            (row,) = Client(home.root).listed()
    assert row.state is State.STOPPING


def test_finished_runs_are_listed_without_reading_their_files(home: AgentctlHome) -> None:
    """Ten thousand reports are not read: without them, and without logs, the list is the same."""
    for code in range(3):
        with HeldRun(home, f"n{code}") as run:
            run.finish(code)
    before = [msgspec.to_builtins(row) for row in Client(home.root).listed(finished=True)]
    for path in home.root.glob("runs/*/*"):
        path.chmod(0)
        path.rename(path.with_name(f"gone-{path.name}"))
    after = [msgspec.to_builtins(row) for row in Client(home.root).listed(finished=True)]
    assert len(before) == 3
    assert after == before
    assert Client(home.root).listed() == []


def test_brief_reports_have_nothing_that_an_agent_can_make_long(home: AgentctlHome) -> None:
    """So that those of a thousand runs fit into one answer."""
    with HeldRun(home) as run:
        long = msgspec.structs.replace(
            _report(run, ""),
            value="x" * 9999,
            error="x" * 9999,
            partial_text="x" * 9999,
            checkpoint=["x" * 9999],
            artifacts=("x" * 9999,),
        )
    assert len(msgspec.msgpack.encode(long.brief())) < 2000
