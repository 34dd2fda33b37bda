"""How many tasks a run may have, from what is left of what everybody shares."""

import os
import threading

import pytest

from agentctl_child.sandbox import rlimits, task_table
from agentctl_child.sandbox.task_table import Bound


@pytest.mark.parametrize(
    ("limit", "used", "promised", "share"),
    [
        pytest.param(4_194_304, 500, 0, 4096, id="large table"),
        pytest.param(4_194_304, 500, None, 4096, id="large table, bounded together"),
        pytest.param(1200, 100, 0, 475, id="half of what is left beside the reserve"),
        pytest.param(1200, 100, None, 950, id="all of it, where the kernel bounds all runs"),
        pytest.param(32_768, 300, 28_000, 1978, id="promised to others"),
        pytest.param(32_768, 300, 32_000, 256, id="promised too much: a few"),
        pytest.param(400, 340, 0, 10, id="fewer than a few are left"),
        pytest.param(400, 380, 0, 0, id="none is left"),
    ],
)
def test_a_share_leaves_the_reserve(
    limit: int, used: int, promised: int | None, share: int
) -> None:
    """Whatever is left: never more than that, less what is kept for a stop."""
    assert rlimits.process_share(Bound("it", limit, used), promised) == share


def test_a_machine_that_tells_nothing_bounds_nothing() -> None:
    """Then the run has its own limit only."""
    assert rlimits.process_share(None, 0) == rlimits.PROCESSES_IN_A_NAMESPACE


def test_the_bounds_are_the_machines() -> None:
    """With their names; and what is there counts, we among it."""
    found = {bound.name: bound for bound in task_table.bounds()}
    assert {"kernel.pid_max", "kernel.threads-max"} <= set(found)
    assert all(0 < bound.used <= bound.limit for bound in found.values())


def test_threads_count() -> None:
    """RLIMIT_NPROC counts them, so the tasks of a uid do."""
    go_on = threading.Event()
    threads = [threading.Thread(target=go_on.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    try:
        assert task_table.tasks_of(os.getuid()) > 20
    finally:
        go_on.set()
        for thread in threads:
            thread.join()
