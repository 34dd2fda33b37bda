"""A stop reaches the model provider: its connection closes with the run, and no request follows.

The provider is a local stub that streams without end and notes when each client is gone.
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import Record, Stop, VerdictRecord
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Rung
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, RollCall, agent_environment, alive, situation
from agentctl_testkit.faults import Stage, staged, tell, told
from agentctl_testkit.provider import Provider, Stream

CLOSED_WITHIN_S: Final = 0.1
"""The promise: so long after the rung that ended the run its connection is gone."""

NOISE: Final = 5
"""On a quiet machine the slowest of these is at 30 ms; on two cores that eight programs
want, a process that was killed is gone from the network this much later."""

MOST_S: Final = 1.9
"""However busy the machine is: whoever is not reached at all shows after two seconds at the
earliest, the shortest grace in use here."""

SYNC, ON_ASYNCIO, PROGRAM = "sync", "on_asyncio", "program"
CLIENTS: Final = (SYNC, ON_ASYNCIO, PROGRAM)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as stub:
        yield stub


@pytest.fixture(scope="module")
def delays(request: pytest.FixtureRequest) -> Iterator[list[float]]:
    """How long each connection took to close; told at the end."""
    seen: list[float] = []
    yield seen
    if seen:
        tell(
            request,
            f"{len(seen)} connections closed {statistics.median(seen) * 1000:.0f} ms (median),"
            f" {max(seen) * 1000:.0f} ms (most) after the rung",
        )


def _spec(client: str, provider: Provider, env: dict[str, str], **fields: Any) -> RunSpec:
    import sys

    program = f"{AGENTS}/provider_client.py"
    what: dict[str, Any] = (
        {"argv": (sys.executable, program)}
        if client == PROGRAM
        else {"target": f"{program}:{client}"}
    )
    env = {**env, "AGENTCTL_TEST_PROVIDER": str(provider.port)}
    return RunSpec(**{**what, "cwd": "/", "env": env, "grace_s": 2, "term_grace_s": 2, **fields})


def _assert_closed(provider: Provider, stream: Stream, rung_at: float, delays: list[float]) -> None:
    delay = provider.wait_for_close(stream) - rung_at
    delays.append(delay)
    assert delay < _within_s(stream)


def _within_s(stream: Stream) -> float:
    return min(CLOSED_WITHIN_S * NOISE + stream.contended_s, MOST_S)


async def _streaming(
    supervisor: Supervisor, state: Home, provider: Provider, env: dict[str, str], **fields: Any
) -> list[tuple[Run, Stream]]:
    """One run for each kind of client, and its stream, which has begun."""
    found = []
    for number, client in enumerate(CLIENTS, 1):
        run = await supervisor.start(_spec(client, provider, env, **fields))
        try:
            streams = await trio.to_thread.run_sync(provider.wait_for_streams, number)
        except AssertionError as error:
            those = situation(f"AGENTCTL_TEST_PROVIDER={provider.port}", run.id)
            raise AssertionError(f"{error}; alive:{those}\n{told(state.find(run.id))}") from None
        found.append((run, streams[-1]))
    return found


def _last_rung(report: Report) -> float:
    """When the rung was taken that ended the run."""
    assert report.ladder[-1].answered == "yes"
    return report.ladder[-1].at.timestamp()


@pytest.fixture
def env(marker: str, roll_call: RollCall) -> dict[str, str]:
    return agent_environment(marker, roll_call)


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


@pytest.mark.parametrize("path", ["stop", "kill", "time limit", "scope cancelled"])
async def test_the_connection_closes_with_the_run(
    path: str, state: Home, provider: Provider, env: dict[str, str], delays: list[float]
) -> None:
    """On every way to the end the provider sees its client gone at once."""
    # Long enough for three interpreters to be up on a busy machine, each before its end.
    fields: dict[str, Any] = {"time_s": 3.0} if path == "time limit" else {}
    clients: list[tuple[Run, Stream]] = []
    with trio.CancelScope() as scope:
        async with Supervisor.open(state) as supervisor:
            clients = await _streaming(supervisor, state, provider, env, **fields)
            async with trio.open_nursery() as nursery:
                for run, _ in clients:
                    if path == "stop":
                        nursery.start_soon(run.stop)
                    elif path == "kill":
                        nursery.start_soon(run.kill)
                    elif path == "scope cancelled":
                        scope.cancel()
                    else:
                        nursery.start_soon(run.wait)

    for client, (run, stream) in zip(CLIENTS, clients, strict=True):
        ended_by = run.report.ladder[-1].step
        if path == "kill":
            assert ended_by is Rung.SIGKILL
        else:
            # A program that does not speak with us cannot be asked.
            assert ended_by is (Rung.SIGTERM if client == PROGRAM else Rung.ASKED)
        _assert_closed(provider, stream, _last_rung(run.report), delays)
    expected = Result.LIMIT if path == "time limit" else Result.STOPPED
    assert {run.report.result for run, _ in clients} == {expected}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_connection_closes_with_a_killed_supervisor(
    client: str, provider: Provider, delays: list[float]
) -> None:
    """SIGKILL to the supervisor is the end of the run, and of its stream."""
    with staged() as stage:
        supervisor = stage.embed(_spec(client, provider, _env_of(stage)))
        (stream,) = provider.wait_for_streams(1)
        killed_at = time.time()
        os.kill(supervisor, signal.SIGKILL)

        _assert_closed(provider, stream, killed_at, delays)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_connection_closes_on_a_stop_past_a_frozen_supervisor(
    client: str, provider: Provider, delays: list[float]
) -> None:
    """``agentctl stop`` reaches the run without its supervisor's help."""
    with staged() as stage:
        supervisor = stage.embed(_spec(client, provider, _env_of(stage)))
        (stream,) = provider.wait_for_streams(1)
        os.kill(supervisor, signal.SIGSTOP)
        (directory,) = stage.runs()
        stopped = stage.home.run("stop", directory.id, "-o", "json")
        os.kill(supervisor, signal.SIGCONT)

        assert stopped.code == 0, stopped.err
        (told,) = json.loads(stopped.stdout)["runs"]
        ladder = told["report"]["ladder"]
        assert (ladder[-1]["step"], ladder[-1]["answered"]) == ("sigterm", "yes")
        rung_at = datetime.fromisoformat(ladder[-1]["at"]).timestamp()
        _assert_closed(provider, stream, rung_at, delays)


def _env_of(stage: Stage) -> dict[str, str]:
    return agent_environment(stage.marker, stage.roll_call)


# --- no request after the stop --------------------------------------------


def _assert_no_request_after_stop(log: list[Record], streams: list[Stream]) -> None:
    (stop,) = (record for record in log if isinstance(record.body, Stop))
    verdicts = [record for record in log if isinstance(record.body, VerdictRecord)]
    granted = [r for r in verdicts if _verdict(r).verdict == "granted"]
    refused = [r for r in verdicts if _verdict(r).verdict == "refused"]
    assert {_verdict(record).call for record in granted} >= {stream.path for stream in streams}
    assert all(record.seq < stop.seq for record in granted)
    assert all(record.seq > stop.seq for record in refused)
    assert [stream for stream in streams if stream.at > stop.time_ns / 1e9] == []


def _verdict(record: Record) -> VerdictRecord:
    assert isinstance(record.body, VerdictRecord)
    return record.body


async def test_an_agent_that_goes_on_asking_gets_no_further_request_out(
    state: Home, marker: str, roll_call: RollCall, env: dict[str, str]
) -> None:
    """After the stop record every ask is refused, and the provider hears nothing more."""
    with Provider(chunks=40) as provider:
        async with Supervisor.open(state) as supervisor:
            run = await supervisor.start(_spec("insatiable", provider, env, term_grace_s=0.5))
            # The answer takes 200 ms: none is about to be asked for while this one begins.
            await trio.to_thread.run_sync(provider.wait_for_streams, 3)
            report = await run.stop()
            log = [record async for record in run.events()]

        assert report.result is Result.STOPPED
        assert [step.step for step in report.ladder] == [Rung.ASKED, Rung.SIGTERM, Rung.SIGKILL]
        # It was heard to ignore the request, so the rest of that grace was skipped.
        assert report.ladder[0].answered == "asked for a call"
        _assert_no_request_after_stop(log, provider.streams)
        after_stop = log[next(n for n, r in enumerate(log) if isinstance(r.body, Stop)) :]
        assert sum(isinstance(record.body, Ask) for record in after_stop) >= 10
        roll_call.hear()
        assert any(line.startswith("refused 10 ") for line in roll_call.lines)
        assert alive(marker) == []


def test_nothing_is_granted_while_the_supervisor_is_frozen_and_the_run_is_stopped() -> None:
    """An ask that a frozen supervisor finds when it goes on comes after the stop from outside."""
    with Provider(chunks=40) as provider, staged() as stage:
        supervisor = stage.embed(_spec("insatiable", provider, _env_of(stage)))
        provider.wait_for_streams(2)
        os.kill(supervisor, signal.SIGSTOP)
        (directory,) = stage.runs()
        stopped = stage.home.run("stop", directory.id, "--term-grace", "0.3s")
        assert stopped.code == 0, stopped.err
        os.kill(supervisor, signal.SIGCONT)
        assert stage.process is not None
        stage.process.wait(20)

        log = list(LogReader(directory.path, directory.id))
        (stop,) = (record.body for record in log if isinstance(record.body, Stop))
        assert stop.intent
        _assert_no_request_after_stop(log, provider.streams)


def test_the_stub_sees_when_a_client_leaves() -> None:
    """The measure itself: it notes a close within milliseconds, and not before."""
    import http.client

    with Provider() as provider:
        connection = http.client.HTTPConnection("127.0.0.1", provider.port)
        connection.request("GET", "/c1")
        answer = connection.getresponse()
        assert answer.read(5) == b"token"
        (stream,) = provider.wait_for_streams(1)
        assert (stream.path, stream.closed_at) == ("c1", None)

        closed_at = time.time()
        answer.close()
        connection.close()
        assert 0 <= provider.wait_for_close(stream) - closed_at < _within_s(stream)
