"""Numbers for runs that nobody else on the machine has."""

from pathlib import Path

import pytest

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.errors import SpawnError
from agentctl_supervisor.processes.own_uids import OwnUids, uids_of
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit.capabilities import Capability, needs


def test_no_two_supervisors_have_a_number_in_common() -> None:
    """Neighbours, the first and the last pid there can be."""
    pids = [1, 2, 3, 32_768, 4_194_302, 4_194_303]
    every = [uid for pid in pids for uid in uids_of(pid)]
    assert len(set(every)) == len(every)
    assert min(every) >= 1 << 30
    assert max(every) < (1 << 32) - 1


@needs(Capability.ROOT, Capability.PID_NAMESPACE)
async def test_two_supervisors_of_one_process_share_no_number(tmp_path: Path) -> None:
    """What two of them start side by side has two uids."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    spec = RunSpec(argv=("id", "-u"), sandbox=Sandbox.STRICT)
    async with Supervisor.open(home) as one, Supervisor.open(home) as two:
        runs = [await supervisor.start(spec) for supervisor in (one, two)]
        for run in runs:
            await run.wait()
    said = [run.stdout for run in runs]
    assert len({int(text) for text in said}) == 2


def test_those_that_all_tools_know_come_first_and_the_last_returned_comes_last() -> None:
    """A number is used again as late as possible."""
    uids = OwnUids(1234)
    first = uids.take()
    assert first < 1 << 31
    uids.give_back(first)
    left = [uids.take() for _ in uids_of(1234)]
    assert left[-1] == first
    assert all(uid < 1 << 31 for uid in left[:255])


def test_more_than_there_are_is_an_error_with_a_way_out() -> None:
    """And a number that comes back is there again."""
    uids = OwnUids(7)
    taken = [uids.take() for _ in uids_of(7)]
    with pytest.raises(SpawnError) as caught:
        uids.take()
    assert caught.value.hint
    uids.give_back(taken[3])
    assert uids.take() == taken[3]
