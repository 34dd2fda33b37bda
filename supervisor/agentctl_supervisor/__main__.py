"""``agentctl``, and ``python -P -m agentctl_supervisor``, which is the same."""

import signal
import sys


def run() -> int:
    """What the command line of this process asks for; returns its exit code."""
    on_interrupt = signal.getsignal(signal.SIGINT)
    if on_interrupt is signal.default_int_handler:
        # Nothing has begun that would have to be ended: a Ctrl-C ends us as it ends every other
        # program, and not with a traceback out of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agentctl_supervisor.cli import main

    if on_interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, on_interrupt)
    return main()


if __name__ == "__main__":
    sys.exit(run())
