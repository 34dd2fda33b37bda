"""The entry point of ``agentctl``, and of ``python -P -m agentctl_supervisor``.

The two are the same, but the second is not isolated.
"""

import signal
import sys


def run() -> int:
    """Run the command line of this process, and return its exit code."""
    is_pythons = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_pythons:
        # Nothing has been started that must be ended, so Ctrl-C ends us like any other program.
        # A KeyboardInterrupt in an import could give a traceback, another error or no effect.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agentctl_supervisor.cli import main

    def heed_interrupts() -> None:
        if is_pythons:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    return main(ready=heed_interrupts)


if __name__ == "__main__":
    sys.exit(run())
