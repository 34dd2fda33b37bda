"""Matches calls against a pattern that a person wrote, for rules that forbid and that allow.

Pure.  The caller writes the pattern; the agent chooses the name and the arguments of a call.  A
rule that forbids matches everything that looks the same.  A rule that allows matches exactly
what it says.
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
    """A pattern ``[tool:|model:]NAME[:ARGUMENTS]``; only ``*`` and ``?`` are special characters.

    Without ``tool:`` or ``model:``, it applies to both.  ``shell:*`` is the same as ``shell``.
    ``kind``: the kind of calls that it applies to; empty: both.  ``looks_at_arguments``: True if
    it has a pattern for arguments.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        kind, colon, rest = text.partition(":")
        self.kind: Final = kind if colon and rest and kind in KINDS else ""
        body = rest if self.kind else text
        #: The possible splits into name and arguments: a name may hold a colon (``claude-v1:0``).
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
        """Return True if the pattern applies to calls of this *kind*."""
        return self.kind in ("", kind)

    def forbids(self, ask: Ask, arguments: Arguments | None) -> bool:
        """Return True if a rule that forbids, counts, or asks a person matches *ask*.

        *arguments* are None if they cannot be read; then the rule matches, since they may be
        forbidden ones.
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
        """Return True if a rule that allows matches *ask*: by its first split, or literally."""
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
    """Return *wanted* with sorted keys if it is JSON: the arguments have sorted keys, too."""
    if wanted[:1] not in ("{", "["):
        return wanted
    try:
        return as_json(json.loads(wanted))
    except (ValueError, RecursionError):
        return wanted


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # A bracket matches itself: the list in ``shell:["rm","x"]`` is not a set of characters.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.DOTALL)
