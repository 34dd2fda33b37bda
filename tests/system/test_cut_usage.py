"""What model calls used that were cut short: as strands-agents' PR 1772 lost it, 12,087 to 0."""

import json
from collections.abc import AsyncIterator

import pytest
import trio

from agentctl_protocol.messages import CallFinished
from agentctl_protocol.records import Estimate, Stop
from agentctl_protocol.report import Report, UsageTotal
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome, new_marker
from agentctl_testkit.cli import Foregrounds

STREAMS = f"{AGENTS}/model_streams.py:main"
# 44,000 characters of prompt and 4,000 of stream, at four bytes a token; and the role's name.
ESTIMATED = UsageTotal(11_001, 1_000, "estimated")
REPORTED = UsageTotal(12_000, 87, "reported")


@pytest.fixture
async def supervisor(home: AgentctlHome) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)) as opened:
        yield opened


async def streaming(supervisor: Supervisor, which: str) -> Run:
    run = await supervisor.start(RunSpec(target=STREAMS, input=which, grace_s=5))
    with trio.fail_after(20):
        async for record in run.events():
            if "streaming" in repr(record.body):
                return run
    raise AssertionError(run.report.error)


async def stopped(run: Run, *, kill: bool = False) -> Report:
    with trio.fail_after(20):
        return await (run.kill() if kill else run.stop())


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
async def test_a_cut_before_the_usage_chunk_loses_nothing(
    supervisor: Supervisor, *, kill: bool
) -> None:
    """The prompt is counted from the request, the answer from what came; both are above 0."""
    run = await streaming(supervisor, "cut")
    report = await stopped(run, kill=kill)
    assert report.usage == {"big-model": ESTIMATED}
    estimates = [r.body async for r in run.events() if isinstance(r.body, Estimate)]
    assert [(one.estimator, one.completion_tokens) for one in estimates] == [("utf8-bytes/4", 1000)]


async def test_uncut_it_is_reported_once(supervisor: Supervisor) -> None:
    """12,087 tokens are 12,087, and nobody estimates."""
    run = await supervisor.start(RunSpec(target=STREAMS, input="whole"))
    report = await run.wait()
    assert report.usage == {"big-model": REPORTED}
    assert not [r async for r in run.events() if isinstance(r.body, Estimate)]


async def test_a_client_that_leaves_its_stream_in_peace_was_cut_as_well(
    supervisor: Supervisor,
) -> None:
    """It swallows the end and says ``ok``: but it says so after the stop, and without a count."""
    run = await streaming(supervisor, "left")
    report = await stopped(run)
    (finished,) = [r.body async for r in run.events() if isinstance(r.body, CallFinished)]
    assert finished.outcome == "ok"
    assert report.usage == {"big-model": ESTIMATED}


async def test_a_stream_that_failed_is_counted_while_the_run_goes_on(
    supervisor: Supervisor,
) -> None:
    """What came before the line went dead was paid for, and counts against ``--tokens``."""
    run = await streaming(supervisor, "failed")
    assert run.report.usage == {"big-model": ESTIMATED}
    await stopped(run)
    limited = await supervisor.start(RunSpec(target=STREAMS, input="failed", tokens=12_000))
    with trio.fail_after(20):
        report = await limited.wait()
    assert report.result is Result.LIMIT
    assert report.detail.startswith("12,001 tokens used of 12,000 tokens")


async def test_what_is_told_after_an_estimate_replaces_it(supervisor: Supervisor) -> None:
    """By the call's id or without: what was used is never counted twice."""
    run = await streaming(supervisor, "told_late")
    report = await stopped(run)
    assert report.usage == {"big-model": UsageTotal(24_000, 174, "reported")}


async def test_running_counts_that_name_no_call_are_those_of_the_one_that_is_open(
    supervisor: Supervisor,
) -> None:
    """They are kept when it is cut, as partial ones, and no estimate is put beside them."""
    run = await streaming(supervisor, "unnamed")
    report = await stopped(run)
    assert report.usage == {"big-model": UsageTotal(12_000, 87, "partial")}


async def test_each_of_several_calls_at_once_has_its_own_estimate(supervisor: Supervisor) -> None:
    """By what it was asked and what it said; a request of nothing counts as nothing."""
    run = await streaming(supervisor, "parallel")
    report = await stopped(run)
    assert report.usage == {
        "a": UsageTotal(1000, 10, "estimated"),
        "b": UsageTotal(100, 100, "estimated"),
        "c": UsageTotal(0, 1000, "estimated"),
    }


class Words:
    """Counts words."""

    name = "words"

    def count(self, text: str) -> int:
        """How many there are."""
        return len(text.split())


class Broken:
    """Counts nothing."""

    name = "broken"

    def count(self, text: str) -> int:
        """It cannot."""
        raise ValueError(text)


@pytest.mark.parametrize(
    ("estimator", "name", "usage"),
    [
        (Words(), "words", UsageTotal(8001, 800, "estimated")),
        (Broken(), "utf8-bytes/4", ESTIMATED),
    ],
)
async def test_who_embeds_brings_an_estimator(
    home: AgentctlHome, estimator: Words | Broken, name: str, usage: UsageTotal
) -> None:
    """Its name is in the record; one that fails is replaced, and that is in the record, too."""
    store = Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)
    async with Supervisor.open(store, estimator=estimator) as supervisor:
        run = await streaming(supervisor, "cut")
        report = await stopped(run)
        names = [r.body.estimator async for r in run.events() if isinstance(r.body, Estimate)]
    assert names == [name]
    assert report.usage == {"big-model": usage}


async def test_the_stop_comes_before_the_estimate(supervisor: Supervisor) -> None:
    """What is counted at the end is behind the decision to end, and before the end."""
    run = await streaming(supervisor, "cut")
    await stopped(run)
    names = [type(r.body) async for r in run.events()]
    assert names.index(Stop) < names.index(Estimate) < len(names) - 1


def test_who_finds_a_lost_run_counts_what_it_used(home: AgentctlHome) -> None:
    """The estimate is made by whoever looks first, and once, however many look."""
    with Foregrounds(home, new_marker()) as outside:
        process = outside.start("--name", "x", "--input", '"cut"', STREAMS)
        for _ in range(400):
            if "streaming" in home.run("events", "x").out:
                break
        process.kill()
        process.wait()
        for _ in range(2):
            shown = home.run("show", "x", "-o", "json").json()
            assert shown["result"] == "lost"
            assert shown["usage"] == {
                "big-model": {
                    "prompt_tokens": 11_001,
                    "completion_tokens": 1000,
                    "quality": "estimated",
                }
            }
        told = [json.loads(line) for line in home.run("events", "x").out.splitlines()]
        assert [one["type"] for one in told].count("estimate") == 1
