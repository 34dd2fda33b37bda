"""How calls that wait for a person are shown to that person: all of them, and as they are.

Pure.  An agent asks what it likes, as often as it likes: equal calls are told once, so that
none is buried among them, and each by the number that is ours.
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
    """A line for each call unlike the others: ``1, 3-5: shell ls (rule shell), 4 times``."""
    groups: dict[object, list[WaitingCall]] = {}
    for call in calls:
        what = (call.kind, call.name, call.rule, json_line(call.args))
        # Of arguments that are not there nobody can say that they are equal.
        key = call.id if call.args == OMITTED else what
        groups.setdefault(key, []).append(call)
    for alike in groups.values():
        first = alike[0]
        times = f", {len(alike)} times" if len(alike) > 1 else ""
        yield f"{_numbers(alike)}: {told(first.name, first.args)} (rule {first.rule}){times}"


def told(name: str, args: Any, longest: int = _LONGEST_ARGUMENTS) -> str:
    """What is asked for, on one line, in which nothing is hidden."""
    if args is None:
        return _seen(name)
    return f"{_seen(name)} {cut_short(_seen(args), longest)}"


def decide_by(run: str, number: int, call: str) -> str:
    """The commands that decide on a waiting call of *run*, as a person may copy them.

    *call*, its id, is used only where a supervisor of an older version gave no number.
    """
    operands = f"{run} {number}" if number else f"-- {run} {shell_word(call)}"
    return f"agentctl approve {operands}    or: agentctl deny {operands}"


def _seen(value: Any) -> str:
    """*value* as JSON; a text that hides nothing as it is."""
    return value if isinstance(value, str) and value and is_visible(value) else json_line(value)


def _numbers(calls: Sequence[WaitingCall]) -> str:
    """``1, 3-5``; one id of a supervisor that gave no numbers."""
    if not calls[0].number:
        return cut_short(_seen(calls[0].id), _LONGEST_ID)
    ranges: list[list[int]] = []
    for number in sorted(call.number for call in calls):
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    # Few: what is asked for must not be pushed out of sight by them.
    shown = ["-".join(map(str, one)) for one in ranges[:_NUMBERS]]
    return ", ".join(shown if len(ranges) <= _NUMBERS else [*shown, "..."])
