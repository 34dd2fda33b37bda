"""Remembers which ids were used, in a few bytes each, whatever their length.  Pure."""

from array import array
from typing import Final

_TABLES: Final = 256
_FIRST_SLOTS: Final = 8


class UsedIds:
    """A set of texts that only grows, kept as 64-bit fingerprints: 16 to 32 bytes each.

    Two texts with the same fingerprint count as equal.  With a million ids, this happens once in
    about ten million runs, and it affects only the agent that chose the ids.  There are many
    small tables, and only one has to grow at a time, so that no `add` takes long.
    """

    def __init__(self) -> None:
        self._tables = [array("Q", bytes(8 * _FIRST_SLOTS)) for _ in range(_TABLES)]
        self._sizes = [0] * _TABLES
        self._count = 0

    def __repr__(self) -> str:
        return f"<UsedIds {self._count}>"

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        fingerprint = _fingerprint(text)
        table = self._tables[fingerprint % _TABLES]
        return table[_slot(table, fingerprint)] == fingerprint

    def add(self, text: str) -> None:
        """Remember *text*."""
        fingerprint = _fingerprint(text)
        number = fingerprint % _TABLES
        table = self._tables[number]
        slot = _slot(table, fingerprint)
        if table[slot] == fingerprint:
            return
        table[slot] = fingerprint
        self._count += 1
        self._sizes[number] += 1
        if 2 * self._sizes[number] > len(table):
            grown = array("Q", bytes(16 * len(table)))
            for one in filter(None, table):
                grown[_slot(grown, one)] = one
            self._tables[number] = grown


def _fingerprint(text: str) -> int:
    # Python's hash uses a secret key of this process: nobody can choose two texts that collide.
    return hash(text) & 0xFFFF_FFFF_FFFF_FFFF or 1


def _slot(table: "array[int]", fingerprint: int) -> int:
    """Return the slot that holds *fingerprint*, or the free slot where it belongs."""
    mask = len(table) - 1
    slot = (fingerprint >> 8) & mask
    while table[slot] and table[slot] != fingerprint:
        slot = (slot + 1) & mask
    return slot
