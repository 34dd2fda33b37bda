"""From what a run is to see, piece by piece, to the parts that its view is made of, in order.

Pieces may overlap: a read-only piece inside the workspace stays read-only, and one that is
shown already is left out.  Pure but for looking at what is there.
"""

import enum
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from agentctl_protocol.spawning import Bind, Cover, Link, Part, Scratch, Text
from agentctl_supervisor.policy.links import follow, leads_out, lies_inside
from agentctl_supervisor.policy.untrusted_files import is_directory, is_missing, status, unreadable


class Rank(enum.IntEnum):
    """What counts where two pieces are at one path: the higher one."""

    LINK = 0
    SCRATCH = 1
    SEEN = 2  # the system, installations, the search path
    CODE = 3  # the agent's own
    WORKSPACE = 4
    PROTECTED = 5
    NAMED = 6  # by --ro and --rw
    KEPT = 7  # agentctl's own
    COVERED = 8


@dataclass(frozen=True)
class Piece:
    """A part of the view, and why it is there.  A pin only keeps in place what lies beneath."""

    part: Part
    why: str
    rank: Rank
    is_pin: bool = False

    @cached_property
    def path(self) -> str:
        """Where it is, in the run and on the host."""
        return os.fsdecode(self.part.path)

    def at(self, path: str) -> "Piece":
        """The same at another path."""
        return replace(self, part=msgspec.structs.replace(self.part, path=os.fsencode(path)))

    @property
    def writable(self) -> bool:
        """Whether the run can change what is there on the host."""
        return isinstance(self.part, Bind) and self.part.writable


@dataclass(frozen=True)
class View:
    """The ``pieces`` in order, parents first; ``pins`` hold the ancestors of what may not move.

    ``changeable``: pieces that would have to be read-only, or covered, and cannot be: with
    Landlock alone what lies in a writable directory is writable.
    """

    pieces: tuple[Piece, ...]
    changeable: tuple[Piece, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the child makes the view of."""
        return tuple(piece.part for piece in self.pieces)


@dataclass
class Gathered:
    """Collects pieces; the later of two of one rank at one path is forgotten.

    ``writable``: directories that runs can write to.  A link there opens nothing outside of them.
    """

    writable: tuple[str, ...] = ()
    pieces: dict[str, Piece] = field(default_factory=dict)

    def put(self, piece: Piece) -> None:
        """Add *piece*, whose path has no link in it."""
        there = self.pieces.get(piece.path)
        if there is None or there.rank < piece.rank:
            self.pieces[piece.path] = piece

    def put_all(self, pieces: Iterable[Piece]) -> None:
        """Add all of *pieces*."""
        for piece in pieces:
            self.put(piece)

    def all(self) -> tuple[Piece, ...]:
        """What was collected."""
        return tuple(self.pieces.values())

    def show(
        self,
        path: str,
        why: str,
        rank: Rank,
        *,
        writable: bool = False,
        mapped: bool | None = None,
        optional: bool = False,
    ) -> None:
        """Add what the absolute *path* leads to, and the links on the way.

        *mapped*: for a run with a uid of its own, what belongs to its owner is the run's;
        default: where others could not read it.  What is not there is left out.

        Raises:
            UnreadableError: what is to be kept from the run cannot be looked at.
        """
        try:
            followed = follow(path)
            found = os.stat(followed.real)
        except OSError as error:
            # What is not shown needs no protection.
            if rank >= Rank.CODE and not writable and not is_missing(error):
                raise unreadable(path, error) from None
            return
        if leads_out(followed, self.writable):
            return
        for place, target in followed.links:
            self.put(Piece(Link(os.fsencode(place), os.fsencode(target)), why, Rank.LINK))
        if mapped is None:
            needed = 0o005 if stat.S_ISDIR(found.st_mode) else 0o004
            mapped = found.st_mode & needed != needed
        bind = Bind(os.fsencode(followed.real), writable=writable, mapped=mapped, optional=optional)
        self.put(Piece(bind, why, rank))


def private_root(gathered: Gathered) -> View:
    """The view at strict: a root made of nothing but the parts."""
    pieces = _without_opened(_sorted(gathered.pieces.values()))
    return View(tuple(_with_pins(_without_seen(pieces))))


def as_it_is(gathered: Gathered) -> View:
    """The view at standard: what of the host is in reach, which Landlock can say."""
    binds: list[Piece] = []
    changeable: list[Piece] = []
    for piece, around in _nested(_sorted(gathered.pieces.values())):
        if isinstance(piece.part, Link | Text | Scratch):
            continue
        if isinstance(piece.part, Cover):
            if any(lies_inside(piece.path, outer.path) for outer in binds):
                changeable.append(piece)
            continue
        enclosing = [outer for outer in around if isinstance(outer.part, Bind)]
        if any(outer.writable for outer in enclosing):
            if not piece.writable and piece.rank > Rank.SEEN:
                changeable.append(piece)
            continue
        if enclosing and not piece.writable:
            continue
        binds.append(piece)
    return View(tuple(binds), tuple(changeable))


def _sorted(pieces: Iterable[Piece]) -> list[Piece]:
    return sorted(pieces, key=lambda piece: piece.path.split("/"))


def _nested(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, list[Piece]]]:
    """Each of *pieces*, which are sorted, with those around it, the outermost first."""
    around: list[Piece] = []
    for piece in pieces:
        while around and not lies_inside(piece.path, around[-1].path):
            around.pop()
        yield piece, list(around)
        around.append(piece)


def _without_opened(pieces: list[Piece]) -> list[Piece]:
    """Without what ``--rw`` opens: a virtual environment, say, to install something into it.

    It opens neither the agent's code nor what is protected or ours.
    """
    kept: list[Piece] = []
    for piece, around in _nested(pieces):
        chosen = next((outer for outer in reversed(around) if outer.rank >= Rank.WORKSPACE), None)
        opened = chosen is not None and chosen.rank is Rank.NAMED and chosen.writable
        if not (opened and piece.rank is Rank.SEEN):
            kept.append(piece)
    return kept


def _without_seen(pieces: list[Piece]) -> list[Piece]:
    """Without what is shown by a piece around it."""
    kept: list[Piece] = []
    around: list[Piece] = []
    for piece in pieces:
        while around and not lies_inside(piece.path, around[-1].path):
            around.pop()
        shown = _in(piece, around[-1].part if around else None)
        if shown is not None:
            kept.append(shown)
            around.append(shown)
    return [_opened(piece, kept) for piece in kept]


def _in(piece: Piece, outer: Part | None) -> Piece | None:
    """*piece* as it has to be in *outer*, the part around it; None if it need not be."""
    match piece.part, outer:
        case ((Link() | Text()), Bind()):
            return None
        case Bind(), Bind():
            bind = _as_in(piece, outer)
            same = piece.writable == outer.writable and bind.part == _mapped_as(outer, bind.part)
            return None if same else bind
        case (Cover(optional=True), Bind()):
            return piece
        case ((Cover() | Scratch()), Bind()) if not is_directory(piece.path):
            return None
        case Cover(), (None | Scratch() | Cover()):
            # Nothing is there that would have to be covered.
            return None
    return piece


def _as_in(piece: Piece, outer: Bind) -> Piece:
    """*piece* as it has to be in *outer*: whose files are the run's there, are so here."""
    assert isinstance(piece.part, Bind)
    if not outer.mapped or piece.part.mapped or belongs_to_another(piece.part.path, outer.path):
        return piece
    return replace(piece, part=msgspec.structs.replace(piece.part, mapped=True))


def _mapped_as(outer: Bind, part: Part) -> Part:
    assert isinstance(part, Bind)
    return msgspec.structs.replace(part, mapped=outer.mapped)


def belongs_to_another(path: bytes | str, directory: bytes | str) -> bool:
    """Whether a file is not of the user whom *directory* belongs to.  Of none that is not there.

    Raises:
        UnreadableError: that cannot be known.
    """
    found = status(os.fsdecode(path), follow=True)
    around = status(os.fsdecode(directory), follow=True)
    return found is not None and around is not None and found.st_uid != around.st_uid


def _opened(piece: Piece, pieces: list[Piece]) -> Piece:
    """A cover with something in it is a small scratch directory, where that can be put."""
    if isinstance(piece.part, Cover) and any(
        lies_inside(other.path, piece.path) for other in pieces
    ):
        return replace(piece, part=Scratch(piece.part.path, size_bytes=1 << 16, mode=0o755))
    return piece


def _with_pins(pieces: list[Piece]) -> list[Piece]:
    """With a writable part onto itself for each directory that could be renamed away.

    A read-only part stays where it is, since a mount point cannot be renamed; the directories
    between it and the writable part around it could be, and something else put in its place.
    """
    pins: dict[str, Piece] = {}
    for piece, around in _nested(pieces):
        outer = around[-1] if around else None
        if outer is None or not outer.writable or piece.writable:
            continue
        if isinstance(piece.part, Cover) and piece.part.optional:
            continue
        assert isinstance(outer.part, Bind)
        parent = os.path.dirname(piece.path)
        while lies_inside(parent, outer.path):
            pin = Bind(os.fsencode(parent), writable=True, mapped=outer.part.mapped)
            pins.setdefault(parent, Piece(pin, f"holds {piece.path}", Rank.WORKSPACE, is_pin=True))
            parent = os.path.dirname(parent)
    return _sorted([*pieces, *pins.values()])
