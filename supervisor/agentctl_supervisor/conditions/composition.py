"""Conditions that consist of other conditions.

``a | b | c`` is one `AnyOf` of three: nested composites of one kind are merged into one, which
has the same meaning.  So two trees with the same meaning are equal, and only a change between
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
"""Most conditions in one tree; composites and their parts all count."""
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
    """A base that stores the size of a tree: measuring the tree again at each ``|`` is slow."""


class AnyOf(TerminationCondition, _Measured, frozen=True, tag="any"):
    """A condition that is met when one of *conditions*, two or more, is met."""

    conditions: "Sequence[Condition]"

    def __post_init__(self) -> None:
        _settle(self)


class AllOf(TerminationCondition, _Measured, frozen=True, tag="all"):
    """A condition that is met when all of *conditions*, two or more, are met, in any order."""

    conditions: "Sequence[Condition]"

    def __post_init__(self) -> None:
        _settle(self)


Composite: TypeAlias = AnyOf | AllOf
Condition: TypeAlias = Leaf | Composite
_Kind = TypeVar("_Kind", AnyOf, AllOf)


@dataclass(frozen=True, slots=True)
class _Size:
    count: int
    """The number of conditions, itself included."""
    depth: int


class _Joined(tuple[Any, ...]):  # noqa: SLOT001 - a subclass of tuple cannot have slots
    """Conditions that are already flat, with the size of the composite that they form."""

    size: _Size


_LEAF: Final = _Size(1, 0)


def joined(kind: type[_Kind], left: TerminationCondition, right: TerminationCondition) -> _Kind:
    """Combine two conditions for ``|`` and ``&``, at the cost of copying a tuple."""
    parts = _Joined((*_parts(kind, left), *_parts(kind, right)))
    merged = (type(left) is kind) + (type(right) is kind)
    sizes = _size(left), _size(right)
    below = max(
        size.depth - (type(one) is kind) for one, size in zip((left, right), sizes, strict=True)
    )
    parts.size = _Size(sizes[0].count + sizes[1].count + 1 - merged, below + 1)
    return kind(parts)


def leaves_of(condition: TerminationCondition) -> Iterator[Leaf]:
    """Yield the leaves of *condition*, in the order in which they are written."""
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
        # The type checker rules this out, but a caller can still pass anything.
        if not isinstance(condition, TerminationCondition):
            raise ConditionError(f"a {type(condition).__name__} is no condition")
        yield from _parts(kind, condition)
