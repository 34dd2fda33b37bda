"""Watches calls of tools: from the grant, which says the name, to the end, which does not."""

from collections.abc import Callable, Iterable
from typing import Final

from agentctl_protocol.messages import CallFinished
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions.leaf_match import Hits, plain
from agentctl_supervisor.conditions.leaves import FunctionCallTermination

MAX_OPEN_CALLS: Final = 2000
"""Of one more, the one that began first is forgotten: its end is not seen."""


class ToolCalls:
    """Watches for all `FunctionCallTermination` of a tree.

    *on_step*, if there is one, is called for each start and each end of a call.
    """

    def __init__(
        self,
        leaves: Iterable[tuple[int, FunctionCallTermination]],
        hits: Hits,
        on_step: Callable[[], None] | None,
    ) -> None:
        self._hits = hits
        self._on_step = on_step
        #: By name, for each result (None: any) the leaves that wait for it.
        self._wanted: dict[str, list[tuple[str | None, int]]] = {}
        for number, leaf in leaves:
            self._wanted.setdefault(leaf.function_name, []).append((leaf.result, number))
        self._open: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<ToolCalls {len(self._open)} open>"

    def verdict(self, record: VerdictRecord) -> None:
        """The gate has let a call begin, or has not."""
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
        """The agent says that a call is over."""
        name = self._open.pop(event.call, None)
        if name is None:
            return
        if self._on_step is not None:
            self._on_step()
        for result, number in self._wanted.get(name, ()):
            if result is None or result == event.outcome:
                self._hits.append((number, f"Function '{plain(name)}' was executed."))
