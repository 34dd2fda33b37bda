"""A rule about calls as people write it: which calls it forbids, and which it allows.

Pure.  The rule is the caller's; name and arguments of a call are the agent's.  To forbid, a rule
means all that looks the same; to allow, only what it says.
"""

import fnmatch
import functools
import json
import re
from collections.abc import Iterable
from typing import Final

from agentctl_protocol.call_names import skeleton
from agentctl_protocol.messages import Ask
from agentctl_protocol.spec import KINDS
from agentctl_supervisor.gate.call_arguments import Arguments, as_json, loose

_ALL: Final = "*"
_skeleton: Final = functools.lru_cache(64)(skeleton)


class CallPattern:
    """``[tool:|model:]NAME[:ARGUMENTS]``, with ``*`` and ``?``; all else is what it is.

    Without ``tool:`` or ``model:`` it is about both.  ``shell:*`` is the same as ``shell``.
    ``kind``: what it is about, or empty.  ``looks_at_arguments``: whether it names any.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        kind, colon, rest = text.partition(":")
        self.kind: Final = kind if colon and rest and kind in KINDS else ""
        body = rest if self.kind else text
        #: The ways to read it: a name may hold a colon itself (``claude-v1:0``).
        splits = [at for at, char in enumerate(body) if char == ":" and at]
        self._readings = [(body[:at], body[at + 1 :]) for at in splits]
        self._readings.append((body, _ALL))
        self._forbidden = [
            (
                _compiled(skeleton(name)),
                None if wanted == _ALL else _compiled(loose(_in_order(wanted))),
            )
            for name, wanted in self._readings
        ]
        self.looks_at_arguments: Final = any(wanted != _ALL for _, wanted in self._readings)

    def __repr__(self) -> str:
        return f"<CallPattern {self.text}>"

    def covers(self, kind: str) -> bool:
        """Whether it is about calls of this *kind*."""
        return self.kind in ("", kind)

    def forbids(self, ask: Ask, arguments: Arguments | None) -> bool:
        """Whether *ask* is meant by a rule that forbids, counts, or asks a person.

        *arguments* of None cannot be looked at: they may be the worst.
        """
        if not self.covers(ask.kind):
            return False
        looks = _skeleton(ask.name)
        return any(
            name.fullmatch(looks) is not None
            and (wanted is None or arguments is None or _meets(wanted, arguments.parts))
            for name, wanted in self._forbidden
        )

    def allows(self, ask: Ask, arguments: Arguments | None) -> bool:
        """Whether *ask* is meant by a rule that allows: by its first reading, or literally."""
        if not self.covers(ask.kind):
            return False
        name, wanted = self._readings[0]
        whole, _ = self._readings[-1]
        if whole == ask.name:
            return True
        if _compiled(name).fullmatch(ask.name) is None:
            return False
        return wanted == _ALL or (
            arguments is not None and _meets(_compiled(_in_order(wanted)), arguments.whole)
        )


def _meets(wanted: re.Pattern[str], texts: Iterable[str]) -> bool:
    return any(wanted.fullmatch(text) is not None for text in texts)


@functools.cache
def _in_order(wanted: str) -> str:
    """*wanted* with the keys of its JSON in order, if it is JSON: as arguments are shown to it."""
    if wanted[:1] not in ("{", "["):
        return wanted
    try:
        return as_json(json.loads(wanted))
    except (ValueError, RecursionError):
        return wanted


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # A bracket is one: the list in ``shell:["rm","x"]`` is not one of characters.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.DOTALL)
