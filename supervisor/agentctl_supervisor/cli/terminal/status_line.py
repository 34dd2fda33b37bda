"""Makes the text of a status line: always one line, and always narrower than the terminal."""

from collections.abc import Sequence
from typing import Final

from agentctl_supervisor.cli.terminal.console import clip, width
from agentctl_supervisor.cli.terminal.remaining_processes import Onlooker, names
from agentctl_supervisor.cli.wording.narration import Narrator, count
from agentctl_supervisor.text.durations import show_duration

_GAP: Final = "  "
_SHORTEST_NAME: Final = 8


def fitting(name: str, fields: Sequence[str], columns: int) -> str:
    """Return *name* and as many of the first *fields* as fit on a line.

    The line leaves the last column of the terminal free: a character there moves the cursor.
    """
    room = columns - 1
    line = clip(name, max(room - width(fields[0]) - len(_GAP), _SHORTEST_NAME))
    for field in fields:
        longer = f"{line}{_GAP}{field}"
        if width(longer) > room:
            break
        line = longer
    return clip(line, room)


def waiting(
    waits: Sequence[tuple[Narrator, Onlooker]], columns: int, now: float, hint: str = ""
) -> str:
    """Return the line about the stop with the longest remaining wait, and its live processes."""
    narrator, onlooker = max(waits, key=lambda wait: wait[0].until)
    fields = [f"{narrator.phase}, {show_duration(max(narrator.until - now, 0.0))} left"]
    if len(waits) > 1:
        fields.append(f"and {len(waits) - 1} more")
    if onlooker.count:
        fields.append(count(onlooker.count))
        room = columns - 1 - width(fitting(narrator.name, fields, columns)) - len(": ")
        if alive := names(onlooker.commands, room):
            fields[-1] += f": {alive}"
    if hint:
        fields.append(hint)
    return fitting(narrator.name, fields, columns)


def clock(elapsed_s: float, limit_s: float | None) -> str:
    """Return the time left if there is a limit, else the elapsed time.

    It is in whole seconds, so that the line does not flicker.
    """
    if limit_s is None:
        return _whole(int(elapsed_s))
    return f"{_whole(-int(-max(limit_s - elapsed_s, 0.0) // 1))} left"


def _whole(seconds: int) -> str:
    return f"{seconds} s" if seconds < 60 else show_duration(seconds)
