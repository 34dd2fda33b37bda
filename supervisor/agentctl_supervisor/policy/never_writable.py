"""The paths that no run may write to: agentctl's own files, its settings, its import path."""

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.policy import search_path
from agentctl_supervisor.policy.links import cut_short, follow_there, is_beneath, lies_inside
from agentctl_supervisor.policy.own_files import OwnFile
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.unsuitable_directories import PROGRAMS, USR
from agentctl_supervisor.policy.untrusted_files import UnreadableError, entries

_OURS: Final = "agentctl's own, or its interpreter's"


class Refusal(NamedTuple):
    """The reason why a run may not write to a path, and a hint for the user.

    ``why`` completes the sentence "PATH is ...".  Both fields are empty if the run may write
    there.  ``hint`` is also empty if there is no special advice.
    """

    why: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Reserved:
    """The paths that no run may write to.

    ``kept``: the real paths of agentctl's own files.
    ``searched``: the real directories that agentctl imports from, each with a hint.
    ``deciding``: paths of which only the path itself is refused, not what lies beneath it:
    settings and state, and directories whose content decides where a reserved path leads.
    """

    kept: tuple[str, ...] = ()
    searched: Mapping[str, str] = field(default_factory=dict)
    deciding: Mapping[str, Refusal] = field(default_factory=dict)
    names: OtherNames = OtherNames(())  # noqa: RUF009 - never changed

    def why_not(self, path: str, others: Iterable[str] = ()) -> Refusal:
        """Return why a run may not write to the real *path*, whose other names are *others*."""
        for name in (path, *others):
            why, hint = self._why_not(name)
            if why:
                by = "" if name == path else f"another name of {cut_short(name)}: "
                return Refusal(f"{by}{why}", hint)
        return Refusal()

    def _why_not(self, path: str) -> Refusal:
        if any(is_beneath(path, own) for own in self.kept):
            return Refusal(_OURS)
        for directory, hint in self.searched.items():
            if path == directory:
                return Refusal("where agentctl itself imports from (sys.path)", hint)
            if lies_inside(path, directory):
                name = _first_name(path, directory)
                if search_path.is_importable(name):
                    what = f"beneath {name}, and so is called a module that agentctl may import"
                    return Refusal(f"{what} (sys.path)", hint)
        return self.deciding.get(path, Refusal())

    def around(self, directories: Iterable[str]) -> list[str]:
        """Return the reserved paths that lie inside one of *directories*, under any name."""
        within = tuple(directories)
        found: dict[str, None] = {}
        for path in (*self.kept, *self.searched, *self.deciding):
            if any(lies_inside(path, directory) for directory in within):
                found[path] = None
            found.update(dict.fromkeys(self.names.of(path, within)))
        return list(found)


def reserved(files: Iterable[OwnFile], obeyed: Iterable[str], names: OtherNames) -> Reserved:
    """Return the reserved paths: *files*, *obeyed* (settings and state), and what we import.

    *names*: the other names of directories; the result has those of mounts inside, too.
    If a path does not exist, the nearest existing directory above it is reserved.  If a link is
    on the way to a path, the directory of the link is reserved.
    """
    found = _Found()
    for file in files:
        if file.kept:
            found.keep(file.path)
    for started in search_path.started():
        found.keep(started)
    for place in obeyed:
        found.obey(place, "agentctl's settings or state")
    for place in search_path.configured():
        found.obey(place, "what says where agentctl's Python finds its packages")
    for directory, hint in search_path.entries():
        found.search(directory, hint)
    kept = dict.fromkeys(found.kept)
    for at in found.kept:
        kept.update(dict.fromkeys(names.held_in(at)))
    for at in found.searched:
        for point in names.mounted_in(at):
            if search_path.is_importable(_first_name(point, at)):
                kept.update(dict.fromkeys(names.of(point)))
    return Reserved(tuple(kept), found.searched, found.deciding, names)


class _Found:
    """Collects what `reserved` returns."""

    def __init__(self) -> None:
        self.kept: dict[str, None] = {}
        self.searched: dict[str, str] = {}
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

    def search(self, directory: str, hint: str) -> None:
        refusal = Refusal("what agentctl itself imports (sys.path)", hint)
        real = self._follow(directory, refusal)
        if real is None:
            return
        self.searched.setdefault(real, hint)
        for link in _links(real):
            found = self._follow(link, refusal)
            if found is not None:
                self.kept[found] = None

    def _follow(self, path: str, refusal: Refusal) -> str | None:
        """Return the real path of *path*, or None if it does not exist.

        Add the directories that decide where *path* leads to ``deciding``.
        *refusal*: the refusal for *path* itself.
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
    """Return *hint* with the command that makes *path*.

    The command is left out if *path* has a suffix, as a file has, or is too long to be shown.
    """
    _, ending = os.path.splitext(path)
    if ending or cut_short(path) != path:
        return hint
    make = f"mkdir -p {shell_word(path)}"
    return f"{make}; or {hint}" if hint else make


def _links(directory: str) -> list[str]:
    """Return the links in *directory* that have a name that agentctl may import."""
    try:
        found = [entry.name for entry in entries(directory) if entry.is_link]
    except UnreadableError as error:
        # Python skips a directory that it may not read, and no run can make it readable.
        if error.number == errno.EACCES:
            return []
        raise
    return [os.path.join(directory, name) for name in found if search_path.is_importable(name)]


def _first_name(path: str, directory: str) -> str:
    """Return the first component of *path* beneath *directory*."""
    return os.path.relpath(path, directory).split("/", 1)[0]
