"""Shows the calls that wait for approval: all of them, and without hiding anything.

Pure functions.  An agent may ask for any call, any number of times.  Equal calls are shown once, so
that they cannot hide another call.  Each call is shown with the number that the supervisor gave it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from agentctl_protocol.report import WaitingCall
from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.visible_text import is_visible
from agentctl_supervisor.cli.wording.phrases import cut_short
from agentctl_supervisor.report.call_history import OMITTED
from agentctl_supervisor.text.json_text import json_line

_LONGEST_ARGUMENTS: Final = 400
_LONGEST_ID: Final = 40
_NUMBERS: Final = 5


def lines(calls: Sequence[WaitingCall]) -> Iterator[str]:
    """Yield a line for each group of equal calls.

    Example: ``1, 3-5: shell ls (rule shell), 4 times``.
    """
    groups: dict[object, list[WaitingCall]] = {}
    for call in calls:
        what = (call.kind, call.name, call.rule, json_line(call.args))
        # Arguments that are not stored cannot be compared.
        key = call.id if call.args == OMITTED else what
        groups.setdefault(key, []).append(call)
    for alike in groups.values():
        first = alike[0]
        times = f", {len(alike)} times" if len(alike) > 1 else ""
        yield f"{_numbers(alike)}: {told(first.name, first.args)} (rule {first.rule}){times}"


def told(name: str, args: Any, longest: int = _LONGEST_ARGUMENTS) -> str:
    """Return the requested call on one line, with no hidden characters."""
    if args is None:
        return _seen(name)
    return f"{_seen(name)} {cut_short(_seen(args), longest)}"


def decide_by(run: str, number: int, call: str) -> str:
    """Return the commands that decide on a waiting call of *run*, ready to copy.

    *call*, the id of the call, is used only if a supervisor of an older version gave no number.
    """
    operands = f"{run} {number}" if number else f"-- {run} {shell_word(call)}"
    return f"agentctl approve {operands}    or: agentctl deny {operands}"


def _seen(value: Any) -> str:
    """Return *value* as JSON; a text without invisible characters stays as it is."""
    return value if isinstance(value, str) and value and is_visible(value) else json_line(value)


def _numbers(calls: Sequence[WaitingCall]) -> str:
    """Return text like ``1, 3-5``, or the id of one call if the supervisor gave no numbers."""
    if not calls[0].number:
        return cut_short(_seen(calls[0].id), _LONGEST_ID)
    ranges: list[list[int]] = []
    for number in sorted(call.number for call in calls):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    # Only a few: the numbers must not push the requested call out of sight.
    shown = ["-".join(map(str, one)) for one in ranges[:_NUMBERS]]
    return ", ".join(shown if len(ranges) <= _NUMBERS else [*shown, "..."])
