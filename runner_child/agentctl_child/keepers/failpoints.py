"""Delays at named steps of the spawn, so that a test can act exactly at such a step.

Example: ``AGENTCTL_FAILPOINTS="warden:forked=0.03,init:mounted=0.02"``, in seconds. Without the
variable there is no cost. ``AGENTCTL_FAILPOINTS_FIFO`` names a FIFO; ``at STEP`` is written to it
before each delay. The same variable also selects failures of system calls: see
`injected_failures`.
"""

import contextlib
import os
import time
from typing import Final

from agentctl_child.sandbox.injected_failures import PREFIX, VARIABLE

FIFO_VARIABLE: Final = "AGENTCTL_FAILPOINTS_FIFO"


def _parse(text: str) -> dict[str, float]:
    delays = {}
    for part in filter(None, text.split(",")):
        if part.startswith(PREFIX):  # a failure, not a delay
            continue
        step, _, seconds = part.partition("=")
        delays[step] = float(seconds)
    return delays


_DELAYS: Final = _parse(os.environ.get(VARIABLE, ""))
_FIFO: Final = os.environ.get(FIFO_VARIABLE, "")


def reach(step: str) -> None:
    """Wait at this step if a test has asked for it."""
    if _DELAYS and step in _DELAYS:
        if _FIFO:
            _tell(step)
        time.sleep(_DELAYS[step])


def _tell(step: str) -> None:
    # The delay happens even if nobody reads the FIFO or a sandbox forbids opening it.
    with contextlib.suppress(OSError):
        fifo = os.open(_FIFO, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fifo, f"at {step}\n".encode())
        finally:
            os.close(fifo)
