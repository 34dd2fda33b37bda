"""Conditions made of conditions.

``a | b | c`` is one `AnyOf` of three: those of one kind inside each other are one, which
means the same.  So two trees are equal when they say the same, and only a change between
`|` and `&` makes a tree deeper.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from agentctl_supervisor.conditions.condition import TerminationCondition, settle
from agentctl_supervisor.conditions.condition_error import ConditionError
from agentctl_supervisor.conditions.leaves import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)

MAX_CONDITIONS: Final = 10_000
"""In one tree, those that others are made of included."""
MAX_DEPTH: Final = 100

Leaf: TypeAlias = (
    StopMessageTermination
    | MaxMessageTermination
    | TextMentionTermination
    | FunctionalTermination
    | TokenUsageTermination
    | HandoffTermination
    | TimeoutTermination
    | ExternalTermination
    | SourceMatchTermination
    | TextMessageTermination
    | FunctionCallTermination
)


class _Measured(msgspec.Struct, frozen=True, dict=True):
    """Remembers the size of what it holds: measuring a tree anew at each ``|`` adds up."""


class AnyOf(TerminationCondition, _Measured, frozen=True, tag="any"):
    """One of *conditions*, two or more, has happened."""

    conditions: "Sequence[Condition]"

    def __post_init__(self) -> None:
        _settle(self)


class AllOf(TerminationCondition, _Measured, frozen=True, tag="all"):
    """All of *conditions*, two or more, have happened, in whatever order."""

    conditions: "Sequence[Condition]"

    def __post_init__(self) -> None:
        _settle(self)


Composite: TypeAlias = AnyOf | AllOf
Condition: TypeAlias = Leaf | Composite
_Kind = TypeVar("_Kind", AnyOf, AllOf)


@dataclass(frozen=True, slots=True)
class _Size:
    count: int
    """Of conditions, itself included."""
    depth: int


class _Joined(tuple[Any, ...]):  # noqa: SLOT001 - of a tuple there are none
    """Conditions that are known to be flat, and the size of what they make."""

    size: _Size


_LEAF: Final = _Size(1, 0)


def joined(kind: type[_Kind], left: TerminationCondition, right: TerminationCondition) -> _Kind:
    """What ``|`` and ``&`` make of two conditions: its cost is that of copying a tuple."""
    parts = _Joined((*_parts(kind, left), *_parts(kind, right)))
    merged = (type(left) is kind) + (type(right) is kind)
    sizes = _size(left), _size(right)
    below = max(
        size.depth - (type(one) is kind) for one, size in zip((left, right), sizes, strict=True)
    )
    parts.size = _Size(sizes[0].count + sizes[1].count + 1 - merged, below + 1)
    return kind(parts)


def leaves_of(condition: TerminationCondition) -> Iterator[Leaf]:
    """The conditions that *condition* is made of, in the order in which they are written."""
    left: list[Any] = [condition]
    while left:
        one = left.pop()
        if isinstance(one, AnyOf | AllOf):
            left.extend(reversed(one.conditions))
        else:
            yield one


def _parts(kind: type, condition: Any) -> Sequence[Any]:
    if isinstance(condition, AnyOf | AllOf) and type(condition) is kind:
        return condition.conditions
    return (condition,)


def _size(condition: TerminationCondition) -> _Size:
    if isinstance(condition, AnyOf | AllOf):
        size: _Size = vars(condition)["size"]
        return size
    return _LEAF


def _settle(composite: Composite) -> None:
    parts = composite.conditions
    if isinstance(parts, _Joined):
        size = parts.size
    else:
        parts = tuple(_flat(parts, type(composite)))
        sizes = [_size(part) for part in parts]
        if len(sizes) < 2:
            word = "any" if isinstance(composite, AnyOf) else "all"
            raise ConditionError(f"{word} of fewer than two conditions", "leave it out")
        size = _Size(1 + sum(one.count for one in sizes), 1 + max(one.depth for one in sizes))
    if size.count > MAX_CONDITIONS:
        raise ConditionError(f"more than {MAX_CONDITIONS} conditions")
    if size.depth > MAX_DEPTH:
        raise ConditionError(f"conditions inside each other more than {MAX_DEPTH} times")
    settle(composite, "conditions", tuple(parts))
    vars(composite)["size"] = size


def _flat(conditions: Sequence[Condition], kind: type) -> Iterator[Condition]:
    for condition in conditions:
        # Not what the type checker knows, but what a caller can do.
        if not isinstance(condition, TerminationCondition):
            raise ConditionError(f"a {type(condition).__name__} is no condition")
        yield from _parts(kind, condition)
