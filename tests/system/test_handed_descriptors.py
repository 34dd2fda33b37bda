"""No run can hand us a descriptor, and what it does to its pipes is its own affair.

The last close of a descriptor can take seconds: of a file of many extents, of a connection that
lingers.  Whoever receives one that nobody else holds any more has to do it.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from agentctl_protocol.messages import Events, Text
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome, descriptors
from agentctl_testkit.capabilities import Capability, needs

LEVELS: Final = (Sandbox.STRICT, Sandbox.STANDARD, Sandbox.BASIC)
ENDING: Final = {"packets": 4, "small": 200_000, "large": 200_000, "nonblocking": 4}
"""With the length of the text that they say."""
STAYING: Final = ("answers_itself", "takes_back", "deaf", "mute", "gifted")
LINGERS_S: Final = 30


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


def spec_of(agent: str, *arguments: str, level: Sandbox = Sandbox.STRICT, **more: Any) -> RunSpec:
    """The test program *agent* at *level*."""
    return RunSpec(
        argv=(sys.executable, "-B", str(AGENTS / f"{agent}.py"), *arguments),
        cwd="/",
        sandbox=level,
        ro=() if level is Sandbox.BASIC else (str(AGENTS),),
        grace_s=0.1,
        term_grace_s=0.1,
        **more,
    )


async def up(run: Run) -> None:
    """Return once it has said that it is."""
    while b"up\n" not in run.stdout:  # noqa: ASYNC110 - output that was captured tells nobody
        await trio.sleep(0.01)


async def texts(run: Run) -> list[str]:
    batches = [r.body.events async for r in run.events() if isinstance(r.body, Events)]
    return [event.text for batch in batches for event in batch if isinstance(event, Text)]


def sockets(pid: int) -> Mapping[int, str]:
    """The sockets among the descriptors of *pid*."""
    held = descriptors(pid)
    return {number: what for number, what in held.items() if what.startswith("socket:")}


@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_that_an_agent_holds_takes_a_descriptor(level: Sandbox, state: Home) -> None:
    """SCM_RIGHTS on 0 to 4, which are all that it holds: they are no sockets."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of("descriptor_giver", "each", level=level))
        report = await run.wait()
    assert report.result is Result.SUCCEEDED, run.stderr
    answers = msgspec.json.decode(run.stdout, type=dict[int, str])
    assert answers == dict.fromkeys(range(5), "ENOTSOCK")


@pytest.mark.parametrize("level", LEVELS)
@needs(Capability.ROOT, Capability.PID_NAMESPACE)
async def test_neither_agent_nor_init_holds_a_socket(level: Sandbox, state: Home) -> None:
    """As /proc shows it, while the agent runs: init is not dumpable, so only root may look."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of("pipe_misuse", "deaf", level=level))
        await up(run)
        contained = run._log.fold.contained
        assert contained is not None
        inside = {identity.pid for identity in run.members()} | {contained.root.pid}
        assert {pid: sockets(pid) for pid in inside} == {pid: {} for pid in inside}
        assert len(inside) == 2
        await run.kill()


def test_a_connection_that_lingers_is_closed_by_the_run_itself(tmp_path: Path) -> None:
    """It is over when its time is, and not when its supervisor has closed what it was given."""
    home = AgentctlHome(tmp_path / "home")
    limits = ("--time", "3s", "--grace", "200ms", "--term-grace", "200ms")
    program = (sys.executable, "-B", str(AGENTS / "descriptor_giver.py"), "linger", str(LINGERS_S))
    done = home.run(
        "run", *limits, "--sandbox", "strict", "--ro", str(AGENTS), "--", *program, within_s=60
    )
    assert (done.code, done.out) == (124, "gave 0\n")
    (run,) = home.run("ps", "-a", "-q").out.split()
    report = home.run("show", run, "-o", "json").json()
    assert (report["result"], report["reason"]) == (Result.LIMIT, Reason.TIME)
    assert report["duration_s"] < LINGERS_S / 2


@pytest.mark.parametrize("misuse", ENDING)
async def test_what_a_run_may_set_on_its_pipes_changes_nothing_said(
    misuse: str, state: Home
) -> None:
    """Packet mode, sizes and flags: all that it says is heard, and it succeeds."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of("pipe_misuse", misuse))
        with trio.fail_after(60):
            report = await run.wait()
        assert report.result is Result.SUCCEEDED, (report.detail, run.stderr)
        assert [len(text) for text in await texts(run)] == [ENDING[misuse]]


@pytest.mark.parametrize("misuse", STAYING)
async def test_a_run_that_talks_to_itself_is_alone_with_that(misuse: str, state: Home) -> None:
    """Its supervisor stops it as any other, and runs what is started beside it."""
    async with Supervisor.open(state) as supervisor:
        # At strict root's runs may not open the pipes again: they are another uid's.
        run = await supervisor.start(spec_of("pipe_misuse", misuse, level=Sandbox.BASIC))
        with trio.fail_after(60):
            await up(run)
            beside = await supervisor.start(spec_of("pipe_misuse", "packets"))
            assert (await beside.wait()).result is Result.SUCCEEDED
            report = await run.stop()
        assert report.result is Result.STOPPED or report.reason is Reason.PROTOCOL
        assert report.processes.survivors == 0


async def test_a_page_that_cannot_be_read_any_more_ends_what_is_said(state: Home) -> None:
    """Spliced out of a file that is cut meanwhile, it is heard, or is not; nothing else happens."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of("pipe_misuse", "spliced"))
        with trio.fail_after(60):
            report = await run.wait()
    assert report.result in {Result.SUCCEEDED, Result.FAILED}, run.stderr
    assert (report.exit_code, report.processes.survivors) == (0, 0)
