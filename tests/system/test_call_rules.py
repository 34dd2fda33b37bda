"""Budgets, rules and approvals, with agents that ask: what is granted, who said so, what ends."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from agentctl_protocol.messages import Events
from agentctl_protocol.records import VerdictRecord, Waiting
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Containment, Reason, Result, State
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import NotWaitingError
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome

TESTER = f"{AGENTS}/rule_tester.py:main"
SHELL = ["tool", "shell", {"cmd": "ls"}]
READ = ["tool", "read_file", "notes"]
MODEL = ["model", "big-model", None]


@pytest.fixture
async def supervisor(home: AgentctlHome) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)) as opened:
        yield opened


async def ended(supervisor: Supervisor, asks: list[Any], **rules: Any) -> Report:
    run = await supervisor.start(RunSpec(target=TESTER, input=asks, grace_s=1, **rules))
    return await run.wait()


async def waiting(run: Run) -> Waiting:
    """The first ask of *run* that waits for a person."""
    async for record in run.events():
        if isinstance(record.body, Waiting):
            return record.body
    raise AssertionError("nothing waits")


async def test_a_refused_call_names_the_rule_and_the_agent_goes_on(supervisor: Supervisor) -> None:
    """The reason reaches the agent as `CallRefused.why`, and the log as the verdict's."""
    report = await ended(supervisor, [READ, SHELL, READ], deny=["shell"], calls_of={"read_*": 1})
    assert report.value == [
        "ok",
        "denied by the rule 'shell'",
        "the budget of 1 call of 'read_*' is used up",
    ]
    assert [call.name for call in report.calls] == ["read_file"]


async def test_the_call_past_the_budget_ends_the_run_with_that_reason(
    supervisor: Supervisor,
) -> None:
    """Result ``limit``, reason ``calls``; what was granted is in the report, the rest is not."""
    report = await ended(supervisor, [MODEL, READ, SHELL, READ], calls=2)
    assert (report.result, report.reason) == (Result.LIMIT, Reason.CALLS)
    assert report.detail.startswith("the budget of 2 calls is used up")
    assert len(report.calls) == 2


async def test_tokens_past_the_budget_end_the_run(supervisor: Supervisor) -> None:
    """As soon as the agent reports them, and not with its next call: it may make none."""
    spec = RunSpec(
        target=f"{AGENTS}/cut_model_call.py:main",
        input={"pieces": 1, "usage": [900, 100], "swallow": False},
        tokens=1000,
    )
    report = await (await supervisor.start(spec)).wait()
    assert (report.result, report.reason) == (Result.LIMIT, Reason.TOKENS)
    assert "1,000 tokens used" in report.detail


async def test_an_approved_call_is_made_and_the_log_names_who_allowed_it(
    supervisor: Supervisor,
) -> None:
    """While it waits the run is ``waiting``; the verdict's actor is a uid of this machine."""
    spec = RunSpec(target=TESTER, input=[SHELL, READ], approve=["shell:*"])
    run = await supervisor.start(spec)
    asked = await waiting(run)
    assert run.report.state is State.WAITING
    assert [(call.id, call.name, call.rule) for call in run.report.waiting] == [
        (asked.call, "shell", "shell:*")
    ]
    client = Client(supervisor.home.root)
    told = await trio.to_thread.run_sync(client.approve, run.id, asked.call)
    assert told == "shell granted"
    report = await run.wait()
    assert report.value == ["ok", "ok"]
    actors = [
        record.body.actor
        async for record in run.events()
        if isinstance(record.body, VerdictRecord) and record.body.name == "shell"
    ]
    assert [actor.kind for actor in actors if actor] == ["uid"]


async def test_a_denied_call_is_refused_with_the_persons_words(supervisor: Supervisor) -> None:
    """And the agent goes on."""
    spec = RunSpec(target=TESTER, input=[SHELL, READ], approve=["shell"])
    run = await supervisor.start(spec)
    asked = await waiting(run)
    client = Client(supervisor.home.root)
    await trio.to_thread.run_sync(lambda: client.deny(run.id, asked.call, reason="not on a Friday"))
    assert (await run.wait()).value == ["not on a Friday", "ok"]


async def test_a_stop_answers_an_ask_that_waits(supervisor: Supervisor) -> None:
    """The call is refused, never made, and a person who comes later is told so."""
    run = await supervisor.start(RunSpec(target=TESTER, input=[SHELL], approve=["shell"]))
    asked = await waiting(run)
    report = await run.stop()
    assert report.result is Result.STOPPED
    assert report.calls == ()
    assert report.waiting == ()
    with pytest.raises(NotWaitingError, match="is over"):
        await trio.to_thread.run_sync(Client(supervisor.home.root).approve, run.id, asked.call)


async def test_two_who_decide_at_once_decide_once(supervisor: Supervisor) -> None:
    """The second is told that nothing waits any more."""
    spec = RunSpec(target=TESTER, input=[SHELL, ["tool", "stay", None]], approve=["*"])
    run = await supervisor.start(spec)
    asked = await waiting(run)
    client = Client(supervisor.home.root)
    await trio.to_thread.run_sync(client.approve, run.id, asked.call)
    with pytest.raises(NotWaitingError, match="waits for approval"):
        await trio.to_thread.run_sync(client.deny, run.id, asked.call)
    await run.kill()


async def test_the_commands_approve_and_deny(home: AgentctlHome, supervisor: Supervisor) -> None:
    """Without a call they mean the one that waits; what cannot be is one line and exit code 1."""
    run = await supervisor.start(
        RunSpec(target=TESTER, input=[SHELL, SHELL], approve=["shell"], name="asker")
    )
    await waiting(run)
    approved = await trio.to_thread.run_sync(lambda: home.run("approve", "asker"))
    assert (approved.code, approved.err) == (0, "")
    assert approved.out.startswith("asker: ")
    with trio.fail_after(10):
        while run.report.state is not State.WAITING:
            await trio.lowlevel.checkpoint()
    denied = await trio.to_thread.run_sync(lambda: home.run("deny", "asker", "--reason", "no"))
    assert denied.out.splitlines() == [
        'asker: 2: shell {"cmd":"ls"} (rule shell)',
        "asker: 1 call refused",
    ]
    assert (await run.wait()).value == ["ok", "no"]
    late = await trio.to_thread.run_sync(lambda: home.run("approve", "asker"))
    assert late.code == 1
    assert late.err.startswith("error: no call of asker waits for approval\n")


@pytest.mark.parametrize("containment", list(Containment))
async def test_a_run_cannot_approve_its_own_call(
    supervisor: Supervisor,
    tmp_path: Path,
    containment: Containment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At basic it has our uid and reaches the control socket; it is told no, and still waits."""
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", containment)
    agent = tmp_path / "approves.py"
    agent.write_text(
        "import threading\nfrom agentctl_child import run\n"
        "from agentctl_supervisor.client import Client\n\n\n"
        "def approve():\n"
        "    try:\n"
        "        run.emit_message(Client(run.input).approve(run.id, '1'))\n"
        "    except Exception as error:\n"
        "        run.emit_message(repr(error))\n\n\n"
        "def main():\n"
        "    threading.Timer(0.2, approve).start()\n"
        "    with run.tool_call('shell'):\n"
        "        return 'made'\n"
    )
    spec = RunSpec(target=f"{agent}:main", input=str(supervisor.home.root), approve=["shell"])
    run = await supervisor.start(spec)
    async for record in run.events():
        if isinstance(record.body, Events):
            break
    # A root's run has a uid of its own in the fallback, and is not even listened to.
    # A run with a uid of its own does not get as far: the state is not its own.
    refusals = ("that is for people", "hung up", "it belongs to root")
    assert any(refusal in repr(record.body) for refusal in refusals)
    assert run.report.state is State.WAITING
    await run.kill()


# --- what a cut call used -----------------------------------------------------


@pytest.mark.parametrize("swallow", [False, True], ids=["cooperative", "killed"])
async def test_a_model_call_cut_before_its_usage_is_estimated(
    supervisor: Supervisor, swallow: bool
) -> None:
    """Prompt and completion are above 0, called estimated, and the record names who counted."""
    spec = RunSpec(
        target=f"{AGENTS}/cut_model_call.py:main",
        input={"pieces": 100, "usage": None, "swallow": swallow},
        grace_s=0.3 if swallow else 5,
        term_grace_s=0.2,
    )
    run = await supervisor.start(spec)
    async for record in run.events():
        if "streaming" in repr(record.body):
            break
    report = await run.stop()
    used = report.usage["big-model"]
    assert used.quality == "estimated"
    # The prompt's 11,000 characters and the stream's 4,000, at four bytes a token.
    assert 2700 <= used.prompt_tokens <= 2800
    assert used.completion_tokens == 1000


async def test_counts_that_the_model_gave_before_the_cut_are_kept(supervisor: Supervisor) -> None:
    """They are partial: true as far as they go, and not replaced by an estimate."""
    spec = RunSpec(
        target=f"{AGENTS}/cut_model_call.py:main",
        input={"pieces": 100, "usage": [12_000, 87], "swallow": False},
    )
    run = await supervisor.start(spec)
    async for record in run.events():
        if "streaming" in repr(record.body):
            break
    report = await run.stop()
    used = report.usage["big-model"]
    assert (used.prompt_tokens, used.completion_tokens, used.quality) == (12_000, 87, "partial")
