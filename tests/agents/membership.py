"""How a misbehaving program says that it is up, and how it ends if nobody can stop it.

Every program here calls `Tree.up` in each of its processes and `Tree.complete` in its
root.  What is said goes to the FIFO in ``AGENTCTL_TEST_READY`` (see `RollCall` in
``tests/support/agentctl_testkit/__init__.py``), one line in one write.  A program run by hand,
without the FIFO, says nothing.

Each process has an alarm at ``AGENTCTL_TEST_SECONDS`` (60) after the start of the
first, so that a run without containment comes to an end.  Imports are few: these
programs are started by the hundred.
"""

import os
import signal
import sys
import time

LEAVE_CODE = 7
_DEADLINE = time.monotonic() + float(os.environ.get("AGENTCTL_TEST_SECONDS", "60"))
_ROLL_CALL = os.environ.get("AGENTCTL_TEST_READY")
# Kept open by all forks: when the last of them is gone, the test is at its end of file.
_DESCRIPTOR = os.open(_ROLL_CALL, os.O_WRONLY | os.O_NONBLOCK) if _ROLL_CALL else -1


class Tree:
    """A root and its members, which tell it when they are in place."""

    def __init__(self) -> None:
        self._heard, self._said = os.pipe()
        arm()

    def up(self, role: str) -> None:
        """Say that this process, member *role*, is in place."""
        arm()
        report(f"up {role} {os.getpid()}")
        os.write(self._said, b".")

    def wait_for(self, members: int) -> None:
        """Return when *members* more members are up."""
        while members:
            members -= len(os.read(self._heard, members))

    def complete(self, members: int) -> None:
        """The root's last call: wait for *members*, be up, then stay (or leave, if told to)."""
        self.wait_for(members)
        self.up("root")
        stay_or_leave()


def report(line: str) -> None:
    """Say *line* to the test."""
    if _ROLL_CALL:
        os.write(_DESCRIPTOR, f"{line}\n".encode())


def seconds_left() -> float:
    """Seconds until every process of this program has to end."""
    return _DEADLINE - time.monotonic()


def arm() -> None:
    """Be killed by an alarm at the deadline.  A fork has none until it calls this."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds_left()))


def ignore_all() -> None:
    """Ignore every signal that can be ignored, but the alarm."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:  # the two that the C library keeps for itself
            pass


def stay() -> None:
    """Do nothing until killed."""
    while True:
        signal.pause()


def stay_or_leave() -> None:
    """What the root does once everybody is up: with ``--leave`` it exits, with `LEAVE_CODE`."""
    if "--leave" in sys.argv:
        os._exit(LEAVE_CODE)
    stay()


def arguments() -> list[str]:
    """The command line without ``--leave``."""
    return [argument for argument in sys.argv[1:] if argument != "--leave"]
