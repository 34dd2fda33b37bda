"""``agentctl``, and ``python -P -m agentctl_supervisor``, which is the same."""

import signal
import sys


def run() -> int:
    """What the command line of this process asks for; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        from agentctl_supervisor.cli import main

        return main()
    # Nothing has begun that would have to be ended: a Ctrl-C ends us as it ends every other
    # program.  Raised within an import, it would be a traceback, another error or nothing at all.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agentctl_supervisor.cli import main

    return main(ready=_heed_interrupts)


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.exit(run())
