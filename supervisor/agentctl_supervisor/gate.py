"""The gate: permission for each model and tool call.

Pure.  The supervisor appends the verdict to the log *before* it sends it, and
that record is the start of the call.  After the stop record every verdict is
``refused``: that, and not the agent's goodwill, is promise P3.
"""

from typing import Final

import msgspec

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import VerdictRecord

MAX_CALLS: Final = 1 << 20
"""Calls of one run whose ids are remembered; more are refused, so that memory is bounded."""


class Gate:
    """Judges the asks of one run.  Open until `close`, then closed for good."""

    def __init__(self) -> None:
        self._closed_because = ""
        self._open_calls: set[str] = set()
        self._used_calls: set[str] = set()

    def __repr__(self) -> str:
        state = f"closed: {self._closed_because}" if self._closed_because else "open"
        return f"<Gate {state}, {len(self._open_calls)} calls running>"

    @property
    def closed(self) -> bool:
        """Whether every further ask is refused."""
        return bool(self._closed_because)

    def close(self, because: str) -> None:
        """Refuse every ask from now on; the first reason stays."""
        self._closed_because = self._closed_because or because

    def judge(self, ask: Ask) -> VerdictRecord:
        """The verdict on *ask*; a granted call is running from here on."""
        why = self._closed_because
        if not why and ask.call in self._used_calls:
            why = "this call id was used before"
        if not why and len(self._used_calls) >= MAX_CALLS:
            why = f"more than {MAX_CALLS} calls in one run"
        if not why:
            self._open_calls.add(ask.call)
            self._used_calls.add(ask.call)
        return VerdictRecord(
            call=ask.call,
            kind=ask.kind,
            name=ask.name,
            verdict="refused" if why else "granted",
            why=why,
            args=msgspec.Raw(bytes(ask.args)),
        )

    def finish(self, call: str) -> bool:
        """Whether *call* was running; it is no longer."""
        if call not in self._open_calls:
            return False
        self._open_calls.remove(call)
        return True
