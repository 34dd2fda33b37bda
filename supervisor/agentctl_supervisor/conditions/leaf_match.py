"""The result that a watcher gives its judge: a leaf's number, and a sentence for people."""

from typing import Final, TypeAlias

from agentctl_supervisor.conditions.condition_error import shown

Hits: TypeAlias = list[tuple[int, str]]

_LONGEST: Final = 80


def plain(text: str) -> str:
    """Return *text* fit for a sentence: on one line, without quotes, cut to 80 characters."""
    return shown(text, _LONGEST)[1:-1]
