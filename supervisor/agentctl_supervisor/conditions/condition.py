"""The base of all termination conditions: frozen values that `|` and `&` combine.

A condition says what ends a run.  It holds no state, so any number of runs can use the same
condition, at once or one after the other.  `judge.Judge` holds the state of one run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from agentctl_protocol.messages import CallFinished, Event
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions.condition_error import ConditionError, shown

if TYPE_CHECKING:
    from agentctl_supervisor.conditions.composition import AllOf, AnyOf

MAX_TEXT: Final = 4096
"""Most characters of a text to look for.  As many are kept of each agent's stream."""
MAX_NAME: Final = 256
MAX_NAMES: Final = 100
MAX_COUNT: Final = (1 << 63) - 1

Judged: TypeAlias = Event | VerdictRecord | CallFinished
"""The input of conditions: the agent's events, the gate's verdicts, and the ends of calls."""

_Value = TypeVar("_Value")


class TerminationCondition(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="type",
):
    """A condition that ends a run when it is met.  ``str()`` returns its text form."""

    def __or__(self, other: "TerminationCondition") -> "AnyOf":
        """Return a condition that ends the run as soon as one of the two is met."""
        from agentctl_supervisor.conditions.composition import AnyOf, joined

        return joined(AnyOf, self, other) if _is_condition(other) else NotImplemented

    def __and__(self, other: "TerminationCondition") -> "AllOf":
        """Return a condition that ends the run as soon as both are met, in any order."""
        from agentctl_supervisor.conditions.composition import AllOf, joined

        return joined(AllOf, self, other) if _is_condition(other) else NotImplemented

    def __str__(self) -> str:
        from agentctl_supervisor.conditions.text_form import to_text

        return to_text(self)


def _is_condition(value: object) -> bool:
    return isinstance(value, TerminationCondition)


def settle(condition: TerminationCondition, field: str, value: object) -> None:
    """Set *field* to its canonical value while *condition* is being constructed."""
    msgspec.structs.force_setattr(condition, field, value)


def check_text(value: Any, what: str, longest: int, *, shortest: int = 1) -> None:
    """Raise `ConditionError` unless *value* is Unicode of *shortest* to *longest* characters."""
    if not isinstance(value, str):
        raise ConditionError(f"{what} is no text: {_named(value)}")
    if not shortest <= len(value) <= longest:
        told = "is empty" if not value else f"is longer than {longest} characters"
        raise ConditionError(f"{what} {told}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConditionError(f"{what} is not Unicode: {shown(value)}") from None


def checked_names(value: Any, what: str) -> tuple[str, ...]:
    """Return the names in *value*, each once.

    Raises:
        ConditionError: *value* is not a sequence of names, is empty or is too long.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConditionError(f"{what} is no list of names: {_named(value)}", 'like ["critic"]')
    if not 1 <= len(value) <= MAX_NAMES:
        told = "is empty" if not value else f"holds more than {MAX_NAMES} names"
        raise ConditionError(f"{what} {told}", "leave it out for all of them")
    for name in value:
        # An empty name is valid: it is the only source of a program with one agent.
        check_text(name, f"a name in {what}", MAX_NAME, shortest=0)
    return tuple(dict.fromkeys(value))


def check_count(value: Any, what: str) -> None:
    """Raise `ConditionError` unless *value* is a whole number from 1 to `MAX_COUNT`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConditionError(f"{what} is no whole number: {_named(value)}")
    if not 1 <= value <= MAX_COUNT:
        told = "less than 1 would end the run before it starts" if value < 1 else "is too big"
        raise ConditionError(f"{what}: {told}")


def check_one_of(value: _Value, known: Sequence[_Value], what: str) -> None:
    """Raise `ConditionError` unless *value* is one of *known*."""
    if value not in known:
        choice = ", ".join(map(str, known))
        raise ConditionError(f"{what} is not one of {choice}: {_named(value)}")


def _named(value: object) -> str:
    kind = type(value).__name__
    return shown(str(value)) if isinstance(value, str | int | float) else f"a {kind}"
