"""An agent that does not want to be stopped.

It becomes five processes: itself, a child in a session of its own, a daemon made
by a double fork, and two twins of which each replaces the other when it dies.  All
of them ignore Ctrl-C and hang-up, and answer SIGTERM by forking once more.

So that nobody has to reboot because of an example, each ends by itself after a minute.
"""

import os
import signal
import sys
import time
from collections.abc import Callable

MEMBERS = 5


def _say_nothing(_role: str) -> None:
    """What is announced when nobody asked."""


def main(announce: Callable[[str], None] = _say_nothing, seconds: float = 60.0) -> None:
    """Become the five processes; returns in the first of them when all are in place.

    *announce* is called in each of the other four with its role.
    """
    deadline = time.monotonic() + seconds
    ready, in_place = os.pipe()

    def report(role: str) -> None:
        announce(role)
        os.write(in_place, b".")

    _dig_in(deadline)
    if os.fork() == 0:
        os.setsid()
        _dig_in(deadline)
        report("session")
        _stay()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        _dig_in(deadline)
        report("daemon")
        _stay()
    if os.fork() == 0:
        _dig_in(deadline)
        report("twin")
        _be_twins(deadline, report)
    up = 1
    while up < MEMBERS:
        up += len(os.read(ready, MEMBERS))
    print("runaway: five processes are up, and none of them means to go", flush=True)


def _dig_in(deadline: float) -> None:
    """Ignore what can be ignored; fork when told to go; end at *deadline*."""

    def fork_instead(_number: int, _frame: object) -> None:
        if os.fork() == 0:
            os.closerange(3, 256)  # the twins watch each other by pipes: keep none open
            _dig_in(deadline)
            _stay()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, fork_instead)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, deadline - time.monotonic()))


def _stay() -> None:
    while True:
        signal.pause()


def _be_twins(deadline: float, announce: Callable[[str], None]) -> None:
    """Keep a twin: fork one whenever there is none, as the elder or as the bereaved younger."""
    while True:
        younger_lives, younger_end = os.pipe()
        elder_lives, elder_end = os.pipe()
        if os.fork() == 0:
            os.close(younger_lives)
            os.close(elder_end)
            _dig_in(deadline)
            announce("twin")
            os.read(elder_lives, 1)  # returns when the elder is dead
            os.close(elder_lives)
            os.close(younger_end)
        else:
            os.close(younger_end)
            os.close(elder_lives)
            os.read(younger_lives, 1)  # returns when the younger is dead
            os.close(younger_lives)
            os.close(elder_end)
        announce = _say_nothing


if __name__ == "__main__":
    main(seconds=float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    _stay()
