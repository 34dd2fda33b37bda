"""Delays at named steps of the spawn, so that a test can strike exactly there.

``AGENTCTL_FAILPOINTS="warden:forked=0.03,init:maps=0.02"``; without it, no cost.
"""

import os
import time
from typing import Final

VARIABLE: Final = "AGENTCTL_FAILPOINTS"


def _parse(text: str) -> dict[str, float]:
    delays = {}
    for part in filter(None, text.split(",")):
        step, _, seconds = part.partition("=")
        delays[step] = float(seconds)
    return delays


_DELAYS: Final = _parse(os.environ.get(VARIABLE, ""))


def reach(step: str) -> None:
    """Wait here, if a test asked for it."""
    if _DELAYS and step in _DELAYS:
        time.sleep(_DELAYS[step])
