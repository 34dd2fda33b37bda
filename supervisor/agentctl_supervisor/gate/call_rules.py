"""Decides which calls a run may make, by name and by number, and which need a person's approval.

Pure.  The caller writes the rules; the agent chooses the name and the arguments of each call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentctl_protocol.call_names import oddity
from agentctl_protocol.messages import Ask
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason
from agentctl_supervisor.gate.call_arguments import Arguments, arguments_of
from agentctl_supervisor.gate.call_pattern import CallPattern


@dataclass(frozen=True)
class Refusal:
    """The reason why a call is refused; ``limit``: the budget of the whole run that is used up."""

    why: str
    limit: Reason | None = None


@dataclass(frozen=True)
class Approval:
    """The result for a call that a person has to approve, with the pattern that matched."""

    pattern: str


class CallRules:
    """The rules of one run.

    Args:
        calls, tokens: budgets of the whole run; None: no limit.
        each: budgets of calls by pattern; a call counts for every pattern that matches it.
        allow: if any of these apply to a call's kind, the call must match one of them.
        deny, approve: patterns of calls that are refused, or that a person decides on.

    If there is any pattern, a call with a deceptive name (see `oddity`) is refused.
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
        patterns = (*self._allow, *self._deny, *self._approve, *(p for p, _ in self._each))
        self._look_at_names = bool(patterns)
        self._look_at_arguments = any(pattern.looks_at_arguments for pattern in patterns)
        self._looked_at: tuple[Ask, Arguments | None] | None = None
        self._granted = 0
        self._granted_each = [0] * len(self._each)

    @classmethod
    def of(cls, spec: RunSpec) -> "CallRules":
        """Return the rules that *spec* names."""
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
        """Judge *ask*; None means that the call may be made.

        ``tokens``: the tokens that the run has used, as far as known.  ``waiting``: how many of
        the counted calls wait for a person, who may refuse them.
        """
        if self._look_at_names and (odd := oddity(ask.name)):
            return Refusal(f"the name {ask.name!a} is not what it looks like: {odd}")
        arguments = self._arguments_of(ask)
        if (rule := _first(self._deny, ask, arguments)) is not None:
            return Refusal(f"denied by the rule {rule.text!r}")
        allow = [pattern for pattern in self._allow if pattern.covers(ask.kind)]
        if allow and not any(pattern.allows(ask, arguments) for pattern in allow):
            if ask.kind == "model":
                return Refusal(f"no rule allows the model {ask.name!r} (model:* allows all)")
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
            if used >= most and pattern.forbids(ask, arguments):
                return Refusal(
                    f"the budget of {_counted(most, 'call')} of {pattern.text!r} is used up"
                )
        if (rule := _first(self._approve, ask, arguments)) is not None:
            return Approval(rule.text)
        return None

    def count(self, ask: Ask) -> None:
        """Count *ask*: it was granted, or it waits for a person who may grant it."""
        self._granted += 1
        if self._each:
            arguments = self._arguments_of(ask)
            for index, (pattern, _) in enumerate(self._each):
                self._granted_each[index] += pattern.forbids(ask, arguments)

    def uncount(self, ask: Ask) -> None:
        """Take a counted *ask* back: a person refused it."""
        self._granted -= 1
        if self._each:
            arguments = self._arguments_of(ask)
            for index, (pattern, _) in enumerate(self._each):
                self._granted_each[index] -= pattern.forbids(ask, arguments)

    def tokens_exceeded(self, tokens: int) -> Refusal | None:
        """Return a refusal if a run that has used *tokens* has to end now, or else None."""
        if self._tokens is None or tokens < self._tokens:
            return None
        return Refusal(
            f"{tokens:,} tokens used of {_counted(self._tokens, 'token')}", Reason.TOKENS
        )

    def _arguments_of(self, ask: Ask) -> Arguments | None:
        if not self._look_at_arguments:
            return None
        # Decoded once, for judging it and for counting it.
        if self._looked_at is None or self._looked_at[0] is not ask:
            self._looked_at = ask, arguments_of(ask.args)
        return self._looked_at[1]


def _first(
    patterns: Sequence[CallPattern], ask: Ask, arguments: Arguments | None
) -> CallPattern | None:
    return next((pattern for pattern in patterns if pattern.forbids(ask, arguments)), None)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
