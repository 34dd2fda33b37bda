"""Agents that misuse asking: nothing of theirs is made that a person did not allow."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from agentctl_protocol.messages import Events
from agentctl_protocol.records import Output, Record, Stop, VerdictRecord, Waiting
from agentctl_protocol.vocabulary import Reason, Result, State
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import NotWaitingError
from agentctl_supervisor.gate.gate import MAX_WAITING
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome, new_marker
from agentctl_testkit.cli import Foregrounds, freeze

ASKER = f"{AGENTS}/hostile_asker.py"
SHELL = ["tool", "shell", {"cmd": "ls"}]


@pytest.fixture
async def supervisor(home: AgentctlHome) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)) as opened:
        yield opened


def program(*arguments: str, **rules: object) -> RunSpec:
    return RunSpec(argv=(sys.executable, ASKER, *arguments), grace_s=0.2, **rules)  # type: ignore[arg-type]


async def until(run: Run, wanted: type) -> Record:
    with trio.fail_after(20):
        async for record in run.events():
            if isinstance(record.body, wanted):
                return record
    raise AssertionError(f"no {wanted.__name__}")


async def until_waiting(run: Run, count: int) -> None:
    with trio.fail_after(20):
        async for record in run.events():
            count -= isinstance(record.body, Waiting)
            if count == 0:
                return


async def bodies(run: Run) -> list[object]:
    return [record.body async for record in run.events()]


async def test_who_asks_after_the_end_is_refused(supervisor: Supervisor, tmp_path: Path) -> None:
    """A thread that the agent's function left behind may ask; the agent is over, so it may not."""
    answers = tmp_path / "answers"
    spec = RunSpec(target=f"{ASKER}:after_the_end", input=str(answers))
    run = await supervisor.start(spec)
    with trio.fail_after(30):
        report = await run.wait()
    assert (report.result, report.value) == (Result.SUCCEEDED, "over")
    body = await bodies(run)
    at = next(n for n, one in enumerate(body) if type(one).__name__ == "ResultMessage")
    later = [one for one in body[at:] if isinstance(one, VerdictRecord)]
    assert {one.verdict for one in later} <= {"refused"}
    # What was granted before is in the report, and nothing that the thread made later.
    granted = [one for one in body[:at] if isinstance(one, VerdictRecord)]
    assert len(report.calls) == len([one for one in granted if one.verdict == "granted"])


async def test_the_gate_closes_with_the_result(supervisor: Supervisor) -> None:
    """While the process lives on: what waits is refused, and so is what is asked for later."""
    run = await supervisor.start(program("after_the_result", approve=["shell"]))
    with trio.fail_after(20):
        async for record in run.events():
            if isinstance(record.body, Output):
                break
        await run.kill()
    verdicts = [one for one in await bodies(run) if isinstance(one, VerdictRecord)]
    assert [(one.call, one.why) for one in verdicts] == [
        ("before", "the agent has ended"),
        ("after", "the agent has ended"),
    ]


async def test_an_ask_that_waits_when_the_agent_ends_is_refused(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """Nobody can approve of a call for an agent that is over."""
    agent = tmp_path / "ends.py"
    agent.write_text(
        "import threading\nfrom agentctl_child import run\n\n\n"
        "def ask():\n"
        "    with run.tool_call('shell'):\n        pass\n\n\n"
        "def main():\n"
        "    threading.Thread(target=ask).start()\n"
        "    for _ in run.inputs():\n        return 'over'\n"
    )
    run = await supervisor.start(RunSpec(target=f"{agent}:main", approve=["shell"]))
    await until(run, Waiting)
    await run.send_input(1)
    verdict = (await until(run, VerdictRecord)).body
    assert isinstance(verdict, VerdictRecord)
    assert (verdict.verdict, verdict.why) == ("refused", "the agent has ended")
    with trio.fail_after(20):
        assert (await run.wait()).value == "over"


async def test_an_agent_cannot_say_the_verdict_itself(supervisor: Supervisor) -> None:
    """On the channel it is no message of its own: the run ends for its protocol, call unmade."""
    run = await supervisor.start(program("own_verdict", approve=["*"]))
    with trio.fail_after(20):
        report = await run.wait()
    assert (report.result, report.reason) == (Result.FAILED, Reason.PROTOCOL)
    assert report.calls == ()
    verdicts = [one for one in await bodies(run) if isinstance(one, VerdictRecord)]
    assert [one.verdict for one in verdicts] == ["refused"]


async def test_a_run_cannot_decide_by_the_connection_of_a_dead_process(
    supervisor: Supervisor,
) -> None:
    """Whoever connected is no member any more; so it decides on nothing."""
    (socket,) = Path(supervisor._control.path).parent.glob("*.sock")
    spec = RunSpec(
        target=f"{ASKER}:borrowed_connection", input=str(socket), approve=["shell"], grace_s=0.2
    )
    run = await supervisor.start(spec)
    said = repr((await until(run, Events)).body)
    assert "that is for people" in said
    assert run.report.state is State.WAITING
    await run.kill()
    assert run.report.calls == ()


async def test_a_flood_of_asks_for_approval_is_answered_and_can_be_stopped(
    supervisor: Supervisor,
) -> None:
    """So many wait, all others are refused; a stop answers those that wait, after its record."""
    count = MAX_WAITING + 1000
    run = await supervisor.start(program("flood", str(count), approve=["*"]))
    refused = 0
    with trio.fail_after(30):
        async for record in run.events():
            refused += isinstance(record.body, VerdictRecord)
            if refused == 1000:
                break
    assert len(run.report.waiting) == MAX_WAITING
    with trio.fail_after(20):
        report = await run.stop()
    assert report.result is Result.STOPPED
    assert report.calls == ()
    body = await bodies(run)
    at = next(n for n, one in enumerate(body) if isinstance(one, Stop))
    after = [one for one in body[at:] if isinstance(one, VerdictRecord)]
    assert len([one for one in body[:at] if isinstance(one, VerdictRecord)]) == 1000
    assert [one.why for one in after] == ["the run is being stopped"] * MAX_WAITING


async def test_an_id_that_waits_cannot_be_used_again(supervisor: Supervisor) -> None:
    """The second ask is refused at once; the first still waits, and is decided on once."""
    run = await supervisor.start(program("same_id", approve=["*"]))
    verdict = (await until(run, VerdictRecord)).body
    assert isinstance(verdict, VerdictRecord)
    assert (verdict.verdict, verdict.why) == ("refused", "this call id was used before")
    assert [call.id for call in run.report.waiting] == ["1"]
    told = await trio.to_thread.run_sync(Client(supervisor.home.root).approve, run.id, "1")
    assert told == "shell granted"
    with trio.fail_after(20):
        report = await run.wait()
    assert run.stdout.decode().split("\n")[1] == "['granted: ']"
    assert len(report.calls) == 1


async def test_who_swallows_every_exception_is_granted_nothing_after_the_stop(
    supervisor: Supervisor,
) -> None:
    """It asks for call after call whatever it is told, and ends by SIGKILL at the latest."""
    run = await supervisor.start(
        RunSpec(target=f"{AGENTS}/swallower.py:main", grace_s=0.5, term_grace_s=0.2)
    )
    await until(run, VerdictRecord)
    with trio.fail_after(20):
        report = await run.stop()
    assert report.result is Result.STOPPED
    body = await bodies(run)
    at = next(n for n, one in enumerate(body) if isinstance(one, Stop))
    assert all(one.verdict == "refused" for one in body[at:] if isinstance(one, VerdictRecord))


@pytest.mark.parametrize("how", ["stop", "kill", "time", "output"])
async def test_whatever_ends_a_run_answers_its_waiting_calls(
    supervisor: Supervisor, how: str, tmp_path: Path
) -> None:
    """Refused, after the stop record, and never made; the waiting costs none of the grace."""
    limits: dict[str, dict[str, float]] = {
        "time": {"time_s": 1.5},
        "output": {"output_bytes": 4096},
    }
    agent = tmp_path / "waits.py"
    agent.write_text(
        "import threading\nfrom agentctl_child import run\n\n\n"
        "def write():\n"
        "    for _ in run.inputs():\n        print('x' * 8192, flush=True)\n\n\n"
        "def main():\n"
        "    threading.Thread(target=write, daemon=True).start()\n"
        "    with run.tool_call('shell'):\n        return 'made'\n"
    )
    spec = RunSpec(target=f"{agent}:main", approve=["shell"], grace_s=5, **limits.get(how, {}))  # type: ignore[arg-type]
    run = await supervisor.start(spec)
    await until(run, Waiting)
    with trio.fail_after(20):
        if how == "output":
            await run.send_input(1)
        elif how == "stop":
            run.request_stop()
        elif how == "kill":
            run.request_stop(kill=True)
        report = await run.wait()
    assert report.result is (Result.STOPPED if how in {"stop", "kill"} else Result.LIMIT)
    assert (report.calls, report.waiting, report.value) == ((), (), None)
    body = await bodies(run)
    at = next(n for n, one in enumerate(body) if isinstance(one, Stop))
    verdicts = [one for one in body if isinstance(one, VerdictRecord)]
    assert [one.verdict for one in verdicts] == ["refused"]
    assert body.index(verdicts[0]) > at


@pytest.mark.parametrize("order", ["approve first", "stop first"])
async def test_an_approval_and_a_stop_in_either_order(supervisor: Supervisor, order: str) -> None:
    """The log says one order, and everybody is told what it says."""
    tester = f"{AGENTS}/rule_tester.py:main"
    spec = RunSpec(target=tester, input=[SHELL, ["tool", "more", None]], approve=["*"], grace_s=1)
    run = await supervisor.start(spec)
    asked = (await until(run, Waiting)).body
    assert isinstance(asked, Waiting)
    client = Client(supervisor.home.root)
    if order == "approve first":
        assert await trio.to_thread.run_sync(client.approve, run.id, asked.call) == "shell granted"
        run.request_stop()
    else:
        run.request_stop()
        with pytest.raises(NotWaitingError):
            await trio.to_thread.run_sync(client.approve, run.id, asked.call)
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.STOPPED
    assert [call.name for call in report.calls] == (["shell"] if order == "approve first" else [])


async def test_approvals_and_stops_that_race_keep_the_promise(supervisor: Supervisor) -> None:
    """Whoever wins: no grant stands behind the stop, and an approval says what became of it."""
    client = Client(supervisor.home.root)
    for _ in range(10):
        spec = RunSpec(target=f"{AGENTS}/rule_tester.py:main", input=[SHELL], approve=["*"])
        run = await supervisor.start(spec)
        asked = (await until(run, Waiting)).body
        assert isinstance(asked, Waiting)
        told = ""

        async def approve(run: Run = run, call: str = asked.call) -> None:
            nonlocal told
            try:
                told = await trio.to_thread.run_sync(client.approve, run.id, call)
            except NotWaitingError as error:
                told = str(error)

        async def stop(run: Run = run) -> None:
            await trio.to_thread.run_sync(client.stop, run.id)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(approve)
                nursery.start_soon(stop)
        report = await run.wait()
        body = await bodies(run)
        verdicts = [one for one in body if isinstance(one, VerdictRecord)]
        stops = [n for n, one in enumerate(body) if isinstance(one, Stop)]
        (verdict,) = verdicts
        assert (told == "shell granted") == (verdict.verdict == "granted") == bool(report.calls)
        if verdict.verdict == "granted" and stops:
            assert body.index(verdict) < stops[0]


async def test_a_person_is_told_when_the_agent_died_first(supervisor: Supervisor) -> None:
    """Denying and approving say that the run is over, and what became of the call is known."""
    run = await supervisor.start(
        RunSpec(target=f"{AGENTS}/rule_tester.py:main", input=[SHELL], approve=["*"])
    )
    asked = (await until(run, Waiting)).body
    assert isinstance(asked, Waiting)
    os.kill(run.members()[0].pid, signal.SIGKILL)
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.FAILED
    client = Client(supervisor.home.root)
    for decide in (client.approve, client.deny):
        with pytest.raises(NotWaitingError, match="is over"):
            await trio.to_thread.run_sync(decide, run.id, asked.call)
    (verdict,) = [one for one in await bodies(run) if isinstance(one, VerdictRecord)]
    assert (verdict.verdict, verdict.why) == ("refused", "the agent has ended")


# --- with another process for a supervisor ------------------------------------


@pytest.fixture
def outside(home: AgentctlHome) -> Iterator[Foregrounds]:
    with Foregrounds(home, new_marker()) as started:
        yield started


def wait_for_a_call(home: AgentctlHome, name: str) -> None:
    wait_for_calls(home, name, 1)


def wait_for_calls(home: AgentctlHome, name: str, count: int) -> list[dict[str, Any]]:
    for _ in range(400):
        shown = home.run("show", name, "-o", "json")
        if shown.code == 0 and len(waiting := shown.json()["waiting"]) >= count:
            return list(waiting)
    raise AssertionError("nothing waits")


def test_who_gave_up_on_a_frozen_supervisor_has_approved_of_nothing(
    home: AgentctlHome, outside: Foregrounds
) -> None:
    """The error said so, so it stays so when the supervisor comes back to life."""
    tester = f"{AGENTS}/rule_tester.py:main"
    process = outside.start("--name", "x", "--approve", "*", "--input", "[" + _CALL + "]", tester)
    wait_for_a_call(home, "x")
    freeze(process)
    for command in (("approve", "x", "c1"), ("deny", "x", "c1"), ("signal", "x")):
        refused = home.run(*command)
        assert refused.code == 125
        assert "does not answer" in refused.err
    process.send_signal(signal.SIGCONT)
    wait_for_a_call(home, "x")
    assert home.run("approve", "x", "c1").out == "x: c1: shell granted\n"
    out, _ = process.communicate(timeout=20)
    assert out == b'["ok"]\n'


def test_a_call_of_a_lost_run_waits_no_more(home: AgentctlHome, outside: Foregrounds) -> None:
    """Its supervisor was killed while a person was asked: who decides is told, and it is lost."""
    tester = f"{AGENTS}/rule_tester.py:main"
    process = outside.start("--name", "x", "--approve", "*", "--input", "[" + _CALL + "]", tester)
    wait_for_a_call(home, "x")
    process.kill()
    process.wait()
    refused = home.run("approve", "x", "c1")
    assert (refused.code, refused.err.splitlines()[0]) == (1, "error: x is over")
    shown = home.run("show", "x", "-o", "json").json()
    assert (shown["result"], shown["waiting"], shown["calls"]) == ("lost", [], [])


_CALL = '["tool", "shell", "ls"]'


@pytest.mark.parametrize("call", ["--all", "1; rm -rf ~", "$(id)", "\x1b]0;evil\x07", "a b"])
def test_an_id_of_an_agents_choice_is_nowhere_to_be_copied(
    home: AgentctlHome, outside: Foregrounds, call: str
) -> None:
    """The command that is offered names the call by a number of ours, and decides on it."""
    process = outside.start(
        "--name", "x", "--approve", "*", "--", sys.executable, ASKER, "call_named", call
    )
    wait_for_a_call(home, "x")
    shown = home.run("show", "x").out.splitlines()
    at = next(n for n, line in enumerate(shown) if "WAITING" in line)
    assert [line.strip() for line in shown[at : at + 2]] == [
        "WAITING    1: shell (rule *)",
        "agentctl approve x 1    or: agentctl deny x 1",
    ]
    assert home.run("approve", "x", "1").out == "x: 1: shell granted\n"
    out, err = process.communicate(timeout=20)
    assert out == b"['granted: ']\n"
    assert "agentctl approve x 1 " in err.decode()


def test_a_number_is_ours_whatever_ids_an_agent_gave(
    home: AgentctlHome, outside: Foregrounds
) -> None:
    """Digits never mean an id: the call that a person read about is the one that is granted."""
    process = outside.start(
        *("--name", "x", "--approve", "*", "--"),
        *(sys.executable, ASKER, "call_named", "2", "1", "word"),
    )
    waiting = wait_for_calls(home, "x", 3)
    assert [(call["number"], call["id"]) for call in waiting] == [(1, "2"), (2, "1"), (3, "word")]
    assert home.run("deny", "x", "2", "--reason", "second").code == 0
    assert home.run("approve", "x", "2").err.startswith("error: no call 2 waits for approval\n")
    assert home.run("approve", "x", "word").out == "x: word: shell granted\n"
    assert home.run("approve", "x", "1").code == 0
    out, _ = process.communicate(timeout=20)
    assert out == b"['refused: second', 'granted: ', 'granted: ']\n"


def test_a_call_cannot_be_buried_among_others(home: AgentctlHome, outside: Foregrounds) -> None:
    """Equal ones are told once, all are told, and --all says what it grants before it does."""
    process = outside.start("--name", "x", "--approve", "*", "--", sys.executable, ASKER, "buried")
    wait_for_calls(home, "x", 256)
    told = [line for line in home.run("show", "x").out.splitlines() if "WAITING" in line]
    assert [line.split(maxsplit=1)[1] for line in told] == [
        "1-100, 102-256: look (rule *), 255 times",
        "101: delete (rule *)",
    ]
    refused = home.run("approve", "x")
    assert refused.code == 2
    assert "256 calls of x wait" in refused.err
    assert "101: delete" in refused.err
    assert home.run("approve", "--all", "x").out.splitlines() == [
        "x: 1-100, 102-256: look (rule *), 255 times",
        "x: 101: delete (rule *)",
        "x: 256 calls granted",
    ]
    assert process.communicate(timeout=20)[0] == b"256\n"


async def test_all_means_those_that_were_told(supervisor: Supervisor) -> None:
    """A call that came later waits on, and so does one whose number is higher."""
    run = await supervisor.start(program("call_named", "a", "b", "c", approve=["*"]))
    await until_waiting(run, 3)
    client = Client(supervisor.home.root)
    told = await trio.to_thread.run_sync(lambda: client.approve(run.id, up_to=2))
    assert told == "2 calls granted"
    assert [call.number for call in run.report.waiting] == [3]
    with pytest.raises(NotWaitingError):
        await trio.to_thread.run_sync(lambda: client.approve(run.id, up_to=2))
    await run.kill()


async def test_a_grant_that_ends_the_run_refuses_those_behind_it(supervisor: Supervisor) -> None:
    """And whoever granted all is told that it was too late for them."""
    run = await supervisor.start(
        program(
            "call_named",
            "a",
            "b",
            "c",
            approve=["*"],
            stop_when="max_messages(1, include_agent_event=true)",
        )
    )
    await until_waiting(run, 3)
    client = Client(supervisor.home.root)
    told = await trio.to_thread.run_sync(lambda: client.approve(run.id, up_to=3))
    assert told == "1 call granted; 2 too late, since the run ends"
    with trio.fail_after(20):
        assert (await run.wait()).result is Result.TERMINATED


def test_what_is_shown_of_a_waiting_call_is_all_or_says_that_it_is_not(
    home: AgentctlHome, outside: Foregrounds
) -> None:
    """Who approves has seen what, or how much more there is."""
    long = "echo " + "x" * 3000 + "; rm -rf ~"
    asks = f'[["tool", "shell", "{long}"]]'
    tester = f"{AGENTS}/rule_tester.py:main"
    process = outside.start("--name", "x", "--approve", "*", "--input", asks, tester)
    wait_for_a_call(home, "x")
    assert "(3,015 characters)" in home.run("show", "x").out
    assert home.run("show", "x", "-o", "json").json()["waiting"][0]["args"] == long
    assert home.run("deny", "x").code == 0
    _, err = process.communicate(timeout=20)
    assert b"(3,015 characters)" in err


@pytest.mark.parametrize("call", ["\udcff\udcfe", "x" * 5000, ""])
def test_a_call_that_cannot_be_is_said_in_one_line(
    home: AgentctlHome, outside: Foregrounds, call: str
) -> None:
    """Bytes that are no text, more than any id has, and nothing: no such call waits."""
    tester = f"{AGENTS}/rule_tester.py:main"
    process = outside.start("--name", "x", "--approve", "*", "--input", "[" + _CALL + "]", tester)
    wait_for_a_call(home, "x")
    refused = home.run("approve", "x", call)
    assert refused.code == 1
    assert refused.err.startswith("error: no call ")
    assert home.run("approve", "--all", "x").code == 0
    assert process.communicate(timeout=20)[0] == b'["ok"]\n'
