"""What the watchers of a tree tell its judge: a leaf's number, and a sentence for people."""

from typing import Final, TypeAlias

from agentctl_supervisor.conditions.condition_error import shown

Hits: TypeAlias = list[tuple[int, str]]

_LONGEST: Final = 80


def plain(text: str) -> str:
    """A text of an agent's, or one that was asked for, for a sentence: one line, not long."""
    return shown(text, _LONGEST)[1:-1]
