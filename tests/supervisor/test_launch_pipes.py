"""The descriptors of one run: all of them, or none."""

import errno
import os

import pytest

from agentctl_supervisor.run import pipe_relay
from agentctl_supervisor.run.launch_pipes import lay
from agentctl_testkit import descriptors


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_failure_in_the_middle_leaves_nothing_open(
    nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without room for the socket of one of the five pipes, those before it are closed again."""
    real = pipe_relay._socket_for
    made: list[int] = []

    def failing(pipe: int) -> tuple[int, int]:
        made.append(pipe)
        if len(made) == nth:
            os.close(pipe)  # as it does without room
            raise OSError(errno.EMFILE, "out of descriptors")
        return real(pipe)

    monkeypatch.setattr(pipe_relay, "_socket_for", failing)
    before = descriptors()
    with pytest.raises(OSError, match="out of descriptors"):
        lay(stdin=True)
    assert descriptors() == before
