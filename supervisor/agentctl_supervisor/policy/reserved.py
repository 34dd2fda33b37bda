"""What no run may be given to write to: what is ours, and where we import from."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentctl_supervisor.policy.import_path import ImportPath, Searched
from agentctl_supervisor.policy.links import follow_there, is_beneath, lies_inside
from agentctl_supervisor.policy.own_files import OwnFile

_INSTALLED: Final = ("/usr", "/lib", "/bin")


class Refusal(NamedTuple):
    """Why a run may not have a path to write to, completing "PATH is", and a way out.

    Both are empty if it may; the way out also where there is none in particular.
    """

    why: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Reserved:
    """What no run may be given to write to.

    ``kept``: the real paths of ours, without those that nobody may change anyway.
    ``path``: what we import, from the real directories ``searched``.
    ``deciding``: real directories in which it is decided what those are.
    """

    kept: tuple[str, ...] = ()
    path: ImportPath = ImportPath()  # noqa: RUF009 - frozen
    searched: Mapping[str, Searched] = field(default_factory=dict)
    deciding: Mapping[str, Refusal] = field(default_factory=dict)

    def why_not(self, path: str) -> Refusal:
        """Whether a run may have the real *path* to write to."""
        if any(is_beneath(path, own) for own in self.kept):
            return Refusal("agentctl's own, or its interpreter's")
        for directory, searched in self.searched.items():
            if path == directory or (searched.whole and is_beneath(path, directory)):
                return _refusal("where agentctl itself imports from", searched)
            if lies_inside(path, directory):
                name = os.path.relpath(path, directory).split("/")[0]
                if self.path.has(name):
                    return _refusal(f"what agentctl itself imports for {name}", searched)
        return self.deciding.get(path, Refusal())

    def around(self, directories: Iterable[str]) -> list[str]:
        """Of what decides about our imports, that which lies inside one of *directories*."""
        within = tuple(directories)
        return [
            path
            for path in dict.fromkeys((*self.searched, *self.deciding))
            if any(lies_inside(path, directory) for directory in within)
        ]


def reserved(files: tuple[OwnFile, ...], path: ImportPath) -> Reserved:
    """What is reserved of *files*, and where modules are looked for on *path*.

    Of a directory that is not there, the nearest one that is decides, and wherever a link is
    on the way, the directory that it is in.
    """
    real = (os.path.realpath(file.path) for file in files if file.kept)
    kept = tuple(own for own in real if not any(is_beneath(own, i) for i in _INSTALLED))
    directories: dict[str, Searched] = {}
    deciding: dict[str, Refusal] = {}
    for searched in path.searched:
        written = os.fsdecode(searched.path)
        followed, stopped = follow_there(written)
        if stopped is None:
            directories.setdefault(followed.real, searched)
        else:
            why = f"where a run could make {written}, which agentctl itself imports from"
            deciding.setdefault(followed.real, _refusal(why, searched))
        for place, _ in followed.links:
            why = f"where a run could change {place}, a link that agentctl itself imports through"
            deciding.setdefault(os.path.dirname(place), _refusal(why, searched))
    return Reserved(kept, path, directories, deciding)


def _refusal(why: str, searched: Searched) -> Refusal:
    return Refusal(f"{why} ({searched.why})", searched.hint)
