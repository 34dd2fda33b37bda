"""The owner of a workspace appears as the run's uid, and nobody else as anybody else."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agentctl_child.sandbox.idmap import exchange
from agentctl_protocol.spawning import Bind
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.view import Caller

_END = 0xFFFF_FFFF
ids = st.integers(0, _END - 1)


def translated(lines: tuple[tuple[int, int, int], ...], number: int) -> int | None:
    for disk, shown, count in lines:
        if disk <= number < disk + count:
            return shown + number - disk
    return None


@given(owner=ids, shown=ids, other=ids)
def test_two_are_exchanged_and_all_others_stay(owner: int, shown: int, other: int) -> None:
    """The map is its own inverse, covers every id, and has few lines."""
    lines = exchange(owner, shown)
    assert translated(lines, owner) == shown
    assert translated(lines, shown) == owner
    if other not in (owner, shown):
        assert translated(lines, other) == other
    assert sum(count for _, _, count in lines) == _END
    assert len(lines) <= 5
    assert all(count > 0 for _, _, count in lines)


@given(owner=ids, shown=ids, first=ids, second=ids)
def test_only_ids_that_there_are(owner: int, shown: int, first: int, second: int) -> None:
    """In a container's user namespace the map names no id that is not in it, on the disk's side."""
    low, high = sorted((first, second))
    lines = exchange(owner, shown, [(low, high + 1)])
    covered = {disk for disk, _, _ in lines} | {disk + count - 1 for disk, _, count in lines}
    assert all(low <= number <= high for number in covered)
    assert sum(count for _, _, count in lines) == high + 1 - low


@needs(Capability.ROOT, Capability.PID_NAMESPACE)
def test_a_file_system_that_cannot_be_mapped_refuses_the_run() -> None:
    """It is named, and so is what to do; the run would otherwise not own its workspace."""
    with Caller.open("root") as caller:
        view = caller.view(Bind(path=b"/sys/kernel", mapped=True))
        refused = caller.launch("/bin/true", view=view).refused()
    assert refused.fault == "sandbox"
    assert "/sys/kernel lies on a file system that cannot show its files" in refused.detail
    assert "--sandbox standard" in refused.hint


@needs(Capability.ROOT, Capability.PID_NAMESPACE)
def test_what_is_mounted_beneath_is_mapped_if_it_can_be() -> None:
    """A submount that cannot be mapped is seen as it is; its neighbours are the run's."""
    program = Path(__file__).with_name("submounts_program.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")},
    )
    assert done.returncode == 0, done.stderr
