"""Watches tool calls: remembers the name from the grant, because the end does not repeat it."""

from collections.abc import Callable, Iterable
from typing import Final

from agentctl_protocol.messages import CallFinished
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions.leaf_match import Hits, plain
from agentctl_supervisor.conditions.leaves import FunctionCallTermination

MAX_OPEN_CALLS: Final = 2000
"""Open calls that are remembered.  One more makes the oldest one forgotten: its end is missed."""


class ToolCalls:
    """The watcher for all `FunctionCallTermination` of a tree.

    *on_step*, if given, is called at the start and at the end of each call.
    """

    def __init__(
        self,
        leaves: Iterable[tuple[int, FunctionCallTermination]],
        hits: Hits,
        on_step: Callable[[], None] | None,
    ) -> None:
        self._hits = hits
        self._on_step = on_step
        #: By tool name: pairs of the awaited result (None: any) and the leaf that waits for it.
        self._wanted: dict[str, list[tuple[str | None, int]]] = {}
        for number, leaf in leaves:
            self._wanted.setdefault(leaf.function_name, []).append((leaf.result, number))
        self._open: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<ToolCalls {len(self._open)} open>"

    def verdict(self, record: VerdictRecord) -> None:
        """Note that a tool call began, if the gate granted one."""
        if record.kind != "tool" or record.verdict != "granted":
            return
        if self._on_step is None and record.name not in self._wanted:
            return
        self._open[record.call] = record.name
        if len(self._open) > MAX_OPEN_CALLS:
            del self._open[next(iter(self._open))]
        if self._on_step is not None:
            self._on_step()

    def finished(self, event: CallFinished) -> None:
        """Take the agent's report that a call ended."""
        name = self._open.pop(event.call, None)
        if name is None:
            return
        if self._on_step is not None:
            self._on_step()
        for result, number in self._wanted.get(name, ()):
            if result is None or result == event.outcome:
                self._hits.append((number, f"Function '{plain(name)}' was executed."))
