"""Which calls a run may make: by name, by number, and which of them a person decides on.

Pure.  The rules are the caller's; what they are matched against, a call's name and its
arguments, is the agent's.
"""

import fnmatch
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.messages import Ask
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import open_value
from agentctl_protocol.vocabulary import Reason

MAX_MATCHED_ARGUMENTS: Final = 1 << 16
"""Characters of a call's arguments that a pattern sees.  What is longer matches every pattern
of an approval and of a denial, and none of a permission: nothing slips past in a long tail."""
MAX_MATCHED_CONTAINERS: Final = 4096
"""Lists and maps in arguments that a pattern sees; what has more is as what is too long."""


class CallPattern:
    """``NAME`` or ``NAME:ARGUMENTS``, both with ``*`` and ``?``; all else is what it is.

    ``ARGUMENTS`` is matched against the arguments as JSON without blanks, or against the
    text itself if they are one string.  ``shell:*`` is the same as ``shell``.
    """

    def __init__(self, text: str) -> None:
        self.text: Final = text
        name, colon, arguments = text.partition(":")
        self._name = _compiled(name)
        self._arguments = _compiled(arguments) if colon and arguments != "*" else None

    def __repr__(self) -> str:
        return f"<CallPattern {self.text}>"

    def matches(self, name: str, arguments: str | None) -> bool:
        """Whether a call is meant; ``arguments`` of None are too long to be looked at."""
        if self._name.fullmatch(name) is None:
            return False
        if self._arguments is None or arguments is None:
            return True
        return self._arguments.fullmatch(arguments) is not None

    def surely_matches(self, name: str, arguments: str | None) -> bool:
        """The same, but arguments that cannot be looked at match nothing that names any."""
        return not (arguments is None and self._arguments is not None) and self.matches(
            name, arguments
        )


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # A bracket is one: the list in ``shell:["rm","x"]`` is not one of characters.
    return re.compile(fnmatch.translate(pattern.replace("[", "[[]")), re.DOTALL)


@dataclass(frozen=True)
class Refusal:
    """Why a call may not be made; ``limit``: a budget of the whole run is used up."""

    why: str
    limit: Reason | None = None


@dataclass(frozen=True)
class Approval:
    """A person has to say whether the call may be made, because of this pattern."""

    pattern: str


class CallRules:
    """The rules of one run.

    Args:
        calls, tokens: budgets of the whole run; None is none.
        each: budgets of calls by pattern; every pattern that matches counts.
        allow: if there are any, a tool call must match one of them.
        deny, approve: tool calls that are refused, and those that a person decides on.
    """

    def __init__(
        self,
        *,
        calls: int | None = None,
        tokens: int | None = None,
        each: Mapping[str, int] | None = None,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        approve: Sequence[str] = (),
    ) -> None:
        self._calls, self._tokens = calls, tokens
        self._each = [(CallPattern(text), most) for text, most in (each or {}).items()]
        self._allow = [CallPattern(text) for text in allow]
        self._deny = [CallPattern(text) for text in deny]
        self._approve = [CallPattern(text) for text in approve]
        self._look_at_arguments = any(
            ":" in pattern.text
            for pattern in (*self._allow, *self._deny, *self._approve, *(p for p, _ in self._each))
        )
        self._granted = 0
        self._granted_each = [0] * len(self._each)

    @classmethod
    def of(cls, spec: RunSpec) -> "CallRules":
        """The rules that *spec* names."""
        return cls(
            calls=spec.calls,
            tokens=spec.tokens,
            each=spec.calls_of,
            allow=spec.allow,
            deny=spec.deny,
            approve=spec.approve,
        )

    def __repr__(self) -> str:
        return f"<CallRules {self._granted} calls granted>"

    def judge(self, ask: Ask, tokens: int, waiting: int = 0) -> Refusal | Approval | None:
        """None: it may be made.

        ``tokens``: how many the run has used, as far as is known.  ``waiting``: how many of the
        calls that count wait for a person, who may refuse them.
        """
        arguments = self._arguments_of(ask)
        if ask.kind == "tool":
            if (rule := _first(self._deny, ask.name, arguments)) is not None:
                return Refusal(f"denied by the rule {rule.text!r}")
            if self._allow and not any(
                pattern.surely_matches(ask.name, arguments) for pattern in self._allow
            ):
                return Refusal(f"no rule allows {ask.name!r}")
        if self._calls is not None and self._granted >= self._calls:
            if self._granted - waiting < self._calls:
                return Refusal(
                    f"the budget of {_counted(self._calls, 'call')} is taken,"
                    f" with {waiting} that wait for approval"
                )
            return Refusal(
                f"the budget of {_counted(self._calls, 'call')} is used up", Reason.CALLS
            )
        if self._tokens is not None and tokens >= self._tokens:
            return Refusal(
                f"the budget of {_counted(self._tokens, 'token')} is used up ({tokens:,})",
                Reason.TOKENS,
            )
        for used, (pattern, most) in zip(self._granted_each, self._each, strict=True):
            if used >= most and pattern.matches(ask.name, arguments):
                return Refusal(
                    f"the budget of {_counted(most, 'call')} of {pattern.text!r} is used up"
                )
        if ask.kind == "tool" and (rule := _first(self._approve, ask.name, arguments)) is not None:
            return Approval(rule.text)
        return None

    def count(self, ask: Ask) -> None:
        """*ask* was granted, or waits for a person and may be."""
        self._granted += 1
        if self._each:
            arguments = self._arguments_of(ask)
            for index, (pattern, _) in enumerate(self._each):
                self._granted_each[index] += pattern.matches(ask.name, arguments)

    def uncount(self, ask: Ask) -> None:
        """A counted *ask* was refused by a person."""
        self._granted -= 1
        if self._each:
            arguments = self._arguments_of(ask)
            for index, (pattern, _) in enumerate(self._each):
                self._granted_each[index] -= pattern.matches(ask.name, arguments)

    def tokens_exceeded(self, tokens: int) -> Refusal | None:
        """Whether a run that has used so many tokens has to end now."""
        if self._tokens is None or tokens < self._tokens:
            return None
        return Refusal(
            f"{tokens:,} tokens used of {_counted(self._tokens, 'token')}", Reason.TOKENS
        )

    def _arguments_of(self, ask: Ask) -> str | None:
        if not self._look_at_arguments:
            return ""
        return text_of(ask.args)


def text_of(raw: msgspec.Raw) -> str | None:
    """Arguments as a pattern sees them; None if they are too long, or no value at all."""
    if len(memoryview(raw)) > 4 * MAX_MATCHED_ARGUMENTS:
        return None
    try:
        value: Any = open_value(raw, "arguments", MAX_MATCHED_CONTAINERS)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (PeerProtocolError, msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= MAX_MATCHED_ARGUMENTS else None


def _first(patterns: Sequence[CallPattern], name: str, arguments: str | None) -> CallPattern | None:
    return next((pattern for pattern in patterns if pattern.matches(name, arguments)), None)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
