"""Turn the pieces that a run may see into the ordered parts of its view.

Pieces may overlap: a read-only piece inside the workspace stays read-only, and a piece that
another piece already shows is left out.  The functions are pure except that they examine files.
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
    """The rank of a piece: if two pieces have one path, the higher rank counts."""

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
    """A part of the view, and the reason for it.

    ``is_pin``: True if the piece only keeps the pieces beneath it in place.
    """

    part: Part
    why: str
    rank: Rank
    is_pin: bool = False

    @cached_property
    def path(self) -> str:
        """The path of the piece, which is the same in the run and on the host."""
        return os.fsdecode(self.part.path)

    def at(self, path: str) -> "Piece":
        """Return the same piece at another path."""
        return replace(self, part=msgspec.structs.replace(self.part, path=os.fsencode(path)))

    @property
    def writable(self) -> bool:
        """True if the run can change the files of the host there."""
        return isinstance(self.part, Bind) and self.part.writable


@dataclass(frozen=True)
class View:
    """The view of a run.

    ``pieces``: in order, parents first.  Pins among them hold the ancestors of pieces that may
    not be moved.
    ``changeable``: pieces that should be read-only or covered but cannot be.  With Landlock alone,
    everything in a writable directory is writable.
    """

    pieces: tuple[Piece, ...]
    changeable: tuple[Piece, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts from which the child builds the view."""
        return tuple(piece.part for piece in self.pieces)


@dataclass
class Gathered:
    """Collect pieces.

    If two pieces have the same path and rank, the first one is kept.

    ``writable``: directories that runs can write to.  A link there shows nothing outside of them.
    """

    writable: tuple[str, ...] = ()
    pieces: dict[str, Piece] = field(default_factory=dict)

    def put(self, piece: Piece) -> None:
        """Add *piece*.  Its path must have no link in it."""
        there = self.pieces.get(piece.path)
        if there is None or there.rank < piece.rank:
            self.pieces[piece.path] = piece

    def put_all(self, pieces: Iterable[Piece]) -> None:
        """Add all of *pieces*."""
        for piece in pieces:
            self.put(piece)

    def all(self) -> tuple[Piece, ...]:
        """Return the collected pieces."""
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
        """Add the file or directory that the absolute *path* leads to, and the links on the way.

        A path that does not exist is left out.
        *mapped*: for a run with its own uid, files of the directory's owner belong to the run.
        The default is True if other users could not read the path.

        Raises:
            UnreadableError: a path that must be protected cannot be examined.
        """
        try:
            followed = follow(path)
            found = os.stat(followed.real)
        except OSError as error:
            # A path that is not shown needs no protection.
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
    """Return the view at strict: a root that has only the parts."""
    pieces = _without_opened(_sorted(gathered.pieces.values()))
    return View(tuple(_with_pins(_without_seen(pieces))))


def as_it_is(gathered: Gathered) -> View:
    """Return the view at standard: the paths of the host that Landlock allows."""
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
    """Yield each of the sorted *pieces* with the pieces around it, the outermost first."""
    around: list[Piece] = []
    for piece in pieces:
        while around and not lies_inside(piece.path, around[-1].path):
            around.pop()
        yield piece, list(around)
        around.append(piece)


def _without_opened(pieces: list[Piece]) -> list[Piece]:
    """Leave out read-only pieces inside a directory that ``--rw`` makes writable.

    Example: a virtual environment in which the run shall install something.  Only pieces of rank
    SEEN are left out.  The agent's code, protected files and agentctl's files stay read-only.
    """
    kept: list[Piece] = []
    for piece, around in _nested(pieces):
        chosen = next((outer for outer in reversed(around) if outer.rank >= Rank.WORKSPACE), None)
        opened = chosen is not None and chosen.rank is Rank.NAMED and chosen.writable
        if not (opened and piece.rank is Rank.SEEN):
            kept.append(piece)
    return kept


def _without_seen(pieces: list[Piece]) -> list[Piece]:
    """Leave out pieces that a piece around them already shows."""
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
    """Return *piece* as it must be inside *outer*, the part around it; None if not needed."""
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
            # The outer part shows no file of the host here, so there is nothing to cover.
            return None
    return piece


def _as_in(piece: Piece, outer: Bind) -> Piece:
    """Return *piece* as it must be inside *outer*.

    If the files of an owner are mapped to the run in *outer*, they are mapped in *piece*, too.
    """
    assert isinstance(piece.part, Bind)
    if not outer.mapped or piece.part.mapped or belongs_to_another(piece.part.path, outer.path):
        return piece
    return replace(piece, part=msgspec.structs.replace(piece.part, mapped=True))


def _mapped_as(outer: Bind, part: Part) -> Part:
    assert isinstance(part, Bind)
    return msgspec.structs.replace(part, mapped=outer.mapped)


def belongs_to_another(path: bytes | str, directory: bytes | str) -> bool:
    """Return whether *path* and *directory* have different owners; False if one does not exist.

    Raises:
        UnreadableError: one of them cannot be examined.
    """
    found = status(os.fsdecode(path), follow=True)
    around = status(os.fsdecode(directory), follow=True)
    return found is not None and around is not None and found.st_uid != around.st_uid


def _opened(piece: Piece, pieces: list[Piece]) -> Piece:
    """Replace a cover by a small scratch directory if other pieces lie inside it.

    The other pieces can be mounted in the scratch directory.
    """
    if isinstance(piece.part, Cover) and any(
        lies_inside(other.path, piece.path) for other in pieces
    ):
        return replace(piece, part=Scratch(piece.part.path, size_bytes=1 << 16, mode=0o755))
    return piece


def _with_pins(pieces: list[Piece]) -> list[Piece]:
    """Add a pin for each directory that could be renamed away: a writable bind onto itself.

    A read-only part stays in its place, because a mount point cannot be renamed.  The directories
    between it and the writable part around it could be renamed, and something else put in their
    place.
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
