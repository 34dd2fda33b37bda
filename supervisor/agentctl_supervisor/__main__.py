"""``agentctl``, and ``python -P -m agentctl_supervisor``: the same, but not isolated."""

import signal
import sys


def run() -> int:
    """What the command line of this process asks for; returns its exit code."""
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons:
        # Nothing has begun that would have to be ended: a Ctrl-C ends us as it ends every other
        # program.  Raised in an import, it would be a traceback, another error or nothing at all.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agentctl_supervisor.cli import main

    def heed_interrupts() -> None:
        if is_pythons:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    return main(ready=heed_interrupts)


if __name__ == "__main__":
    sys.exit(run())
