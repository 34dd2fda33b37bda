"""A tree of conditions as it is judged: what has fired stays fired, so it only ever fills up."""

from typing import Final

from agentctl_protocol.report import FiredCondition
from agentctl_supervisor.conditions.composition import AllOf, AnyOf, Condition, Leaf
from agentctl_supervisor.conditions.leaves import FunctionalTermination


class Circuit:
    """Leaves that fire, and gates above them; equal leaves are one.

    ``closed``: the whole tree has happened.
    """

    def __init__(self, condition: Condition) -> None:
        self.leaves: Final[list[Leaf]] = []
        self.closed = False
        self._fired: dict[int, FiredCondition] = {}
        self._numbers: dict[Leaf | int, int] = {}
        #: For each leaf the gates that it feeds; -1 is the end of the circuit.
        self._above_leaf: list[list[int]] = []
        #: For each gate the one that it feeds, and how many inputs it still waits for.
        self._above_gate: list[int] = []
        self._missing: list[int] = []
        #: For each gate its inputs as they are written: a leaf, or ~ a gate.
        self._inputs: list[list[int]] = []
        self._composites: list[AnyOf | AllOf] = []
        self._root = self._add(condition, -1)
        gate = 0
        while gate < len(self._composites):  # it grows meanwhile
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
        """Leaf *number* has happened; the first time counts."""
        if number not in self._fired:
            self._fired[number] = FiredCondition(str(self.leaves[number]), sentence, at_s)
            for gate in self._above_leaf[number]:
                self._fill(gate)

    def _fill(self, gate: int) -> None:
        """An input of *gate* has happened, and perhaps with it what is above."""
        while gate >= 0:
            self._missing[gate] -= 1
            if self._missing[gate] != 0:  # not yet, or long since
                return
            gate = self._above_gate[gate]
        self.closed = True

    def fired(self) -> tuple[FiredCondition, ...]:
        """Those that made the tree happen, in the order in which they are written.

        A condition that has fired, but only beside one that is still missing, had no part
        in it.
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
