"""Evaluates a tree of conditions: a condition that has fired stays fired."""

from typing import Final

from agentctl_protocol.report import FiredCondition
from agentctl_supervisor.conditions.composition import AllOf, AnyOf, Condition, Leaf
from agentctl_supervisor.conditions.leaves import FunctionalTermination


class Circuit:
    """A tree of gates (`AnyOf`, `AllOf`) above leaves that fire; equal leaves are stored once.

    ``closed``: the whole tree is fulfilled.
    """

    def __init__(self, condition: Condition) -> None:
        self.leaves: Final[list[Leaf]] = []
        self.closed = False
        self._fired: dict[int, FiredCondition] = {}
        self._numbers: dict[Leaf | int, int] = {}
        #: For each leaf, the gates that it is an input of; -1 is the end of the circuit.
        self._above_leaf: list[list[int]] = []
        #: For each gate, the gate that it is an input of, and how many inputs it still needs.
        self._above_gate: list[int] = []
        self._missing: list[int] = []
        #: For each gate, its inputs in written order: the number of a leaf, or ~number of a gate.
        self._inputs: list[list[int]] = []
        self._composites: list[AnyOf | AllOf] = []
        self._root = self._add(condition, -1)
        gate = 0
        while gate < len(self._composites):  # `_add` extends the list
            self._inputs[gate] = [
                self._add(part, gate) for part in self._composites[gate].conditions
            ]
            gate += 1

    def __repr__(self) -> str:
        return f"<Circuit {len(self._fired)} of {len(self.leaves)} conditions fired>"

    def _add(self, condition: Condition, above: int) -> int:
        if isinstance(condition, AnyOf | AllOf):
            self._composites.append(condition)
            self._above_gate.append(above)
            self._missing.append(len(condition.conditions) if isinstance(condition, AllOf) else 1)
            self._inputs.append([])
            return ~(len(self._composites) - 1)
        # A function need not be hashable.
        key = id(condition) if isinstance(condition, FunctionalTermination) else condition
        number = self._numbers.setdefault(key, len(self.leaves))
        if number == len(self.leaves):
            self.leaves.append(condition)
            self._above_leaf.append([])
        self._above_leaf[number].append(above)
        return number

    def fire(self, number: int, sentence: str, at_s: float) -> None:
        """Mark leaf *number* as fired; only the first call counts."""
        if number not in self._fired:
            self._fired[number] = FiredCondition(str(self.leaves[number]), sentence, at_s)
            for gate in self._above_leaf[number]:
                self._fill(gate)

    def _fill(self, gate: int) -> None:
        """Count an input of *gate* as fulfilled, and the gates above if that completes it."""
        while gate >= 0:
            self._missing[gate] -= 1
            if self._missing[gate] != 0:  # not complete yet, or complete before
                return
            gate = self._above_gate[gate]
        self.closed = True

    def fired(self) -> tuple[FiredCondition, ...]:
        """Return the conditions that fulfilled the tree, in written order.

        A fired condition is left out if its `AllOf` still misses another input: it had no part
        in the result.
        """
        found: dict[int, FiredCondition] = {}
        left = [self._root]
        while left:
            code = left.pop()
            if code >= 0:
                if code in self._fired:
                    found[code] = self._fired[code]
            elif self._missing[~code] <= 0:
                left.extend(reversed(self._inputs[~code]))
        return tuple(found.values())
