"""What no run may be given to write to: what is ours, what we obey, and where we import from."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.policy.contents import entries
from agentctl_supervisor.policy.import_path import ImportPath, Searched, as_python_reads
from agentctl_supervisor.policy.links import cut_short, follow_there, is_beneath, lies_inside
from agentctl_supervisor.policy.other_names import OtherNames
from agentctl_supervisor.policy.own_files import OwnFile
from agentctl_supervisor.policy.places import PROGRAMS, USR

_OURS: Final = "agentctl's own, or its interpreter's"


class Refusal(NamedTuple):
    """Why a run may not have a path to write to, completing "PATH is", and a way out.

    Both are empty if it may; the way out also where there is none in particular.
    """

    why: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Reserved:
    """What no run may be given to write to.

    ``kept``: the real paths of ours.
    ``path``: what we import, from the real directories ``searched``.
    ``deciding``: what is refused itself, since it is decided there what those are.
    """

    kept: tuple[str, ...] = ()
    path: ImportPath = ImportPath()  # noqa: RUF009 - frozen
    searched: Mapping[str, Searched] = field(default_factory=dict)
    deciding: Mapping[str, Refusal] = field(default_factory=dict)
    names: OtherNames = OtherNames(())  # noqa: RUF009 - never changed

    def why_not(self, path: str, others: Iterable[str] = ()) -> Refusal:
        """Whether a run may have the real *path*, which *others* lead to as well, to write to."""
        for name in (path, *others):
            why, hint = self._why_not(name)
            if why:
                by = "" if name == path else f"another name of {cut_short(name)}: "
                return Refusal(f"{by}{why}", hint)
        return Refusal()

    def _why_not(self, path: str) -> Refusal:
        if any(is_beneath(path, own) for own in self.kept):
            return Refusal(_OURS)
        if self.path.anywhere is not None:
            return _refusal("where agentctl, started there, would import from", self.path.anywhere)
        for directory, searched in self.searched.items():
            if path == directory or (searched.whole and is_beneath(path, directory)):
                return _refusal("where agentctl itself imports from", searched)
            if lies_inside(path, directory):
                name = os.path.relpath(path, directory).split("/")[0]
                if self.path.has(name):
                    what = f"beneath {name}, and so is called a module that agentctl may import"
                    return _refusal(what, searched)
        return self.deciding.get(path, Refusal())

    def around(self, directories: Iterable[str]) -> list[str]:
        """Of what decides about us, that which lies inside one of *directories*, by any name."""
        within = tuple(directories)
        found: dict[str, None] = {}
        for path in (*self.kept, *self.searched, *self.deciding):
            if any(lies_inside(path, directory) for directory in within):
                found[path] = None
            found.update(dict.fromkeys(self.names.of(path, within)))
        return list(found)


def reserved(
    files: Iterable[OwnFile], path: ImportPath, obeyed: Iterable[str], names: OtherNames
) -> Reserved:
    """What is reserved of *files*, beside them, and of *obeyed*: settings and state.

    *names*: of what is mounted in it, too.
    Of what is not there, the nearest directory that is decides, and wherever a link is on the
    way, the directory that it is in.
    """
    found = _Found()
    for file in files:
        if file.kept:
            found.keep(file.path)
    for started in path.started:
        found.keep(os.fsdecode(started))
    for place in obeyed:
        found.obey(place, "agentctl's settings or state")
    for place in map(os.fsdecode, path.configured):
        found.obey(place, "what says where agentctl's Python finds its packages")
    for searched in path.searched:
        found.search(searched, path)
    kept, everywhere = dict.fromkeys(found.kept), dict(found.searched)
    for at in found.kept:
        kept.update(dict.fromkeys(names.held_in(at)))
    for at, why in found.searched.items():
        for point in names.mounted_in(at):
            if why.whole or path.has(os.path.relpath(point, at).split("/")[0]):
                mounted = Searched(os.fsencode(point), why.why, why.hint, whole=True)
                everywhere.update(dict.fromkeys(names.of(point), mounted))
    return Reserved(tuple(kept), path, everywhere, found.deciding, names)


class _Found:
    """Collects what `reserved` returns."""

    def __init__(self) -> None:
        self.kept: dict[str, None] = {}
        self.searched: dict[str, Searched] = {}
        self.deciding: dict[str, Refusal] = {}
        self._known: dict[str, str] = {}

    def keep(self, path: str) -> None:
        real = self._follow(path, Refusal(_OURS))
        if real in USR:
            self.deciding.setdefault(real, Refusal(_OURS))
            self.kept.update(dict.fromkeys(os.path.join(real, name) for name in PROGRAMS))
        elif real is not None:
            self.kept[real] = None

    def obey(self, path: str, what: str) -> None:
        refusal = Refusal(what)
        real = self._follow(path, refusal)
        if real is not None:
            self.deciding.setdefault(real, refusal)

    def search(self, searched: Searched, path: ImportPath) -> None:
        refusal = _refusal("what agentctl itself imports", searched)
        real = self._follow(os.fsdecode(searched.path), refusal)
        if real is None:
            return
        self.searched.setdefault(real, searched)
        for link in _links(real, path):
            found = self._follow(link, refusal)
            if found is not None:
                target = Searched(os.fsencode(link), searched.why, searched.hint, whole=True)
                self.searched.setdefault(found, target)

    def _follow(self, path: str, refusal: Refusal) -> str | None:
        """The real path of *path*, if it is there; what decides which that is, is noted.

        *refusal*: that of *path* itself.
        """
        followed, stopped = follow_there(path, self._known)
        what, hint = refusal
        if stopped is not None:
            why = f"where a run could make {cut_short(path)}: {what}"
            self.deciding.setdefault(followed.real, Refusal(why, _with_making(path, hint)))
        for place, _ in followed.links:
            why = f"where a run could change {cut_short(place)}, a link to {what}"
            self.deciding.setdefault(os.path.dirname(place), Refusal(why, hint))
        return followed.real if stopped is None else None


def _with_making(path: str, hint: str) -> str:
    """*hint*, and how to make *path*, where that is a directory and its name can be said."""
    _, ending = os.path.splitext(path)
    if ending or cut_short(path) != path:
        return hint
    make = f"mkdir -p {shell_word(path)}"
    return f"{make}; or {hint}" if hint else make


def _links(directory: str, path: ImportPath) -> list[str]:
    """The links in *directory* that are called like modules."""
    found = as_python_reads(lambda: [entry.name for entry in entries(directory) if entry.is_link])
    return [os.path.join(directory, name) for name in found or () if path.has(name)]


def _refusal(what: str, searched: Searched) -> Refusal:
    return Refusal(f"{what} ({searched.why})", searched.hint)
