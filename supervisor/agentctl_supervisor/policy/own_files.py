"""Files that are ours: the interpreter with what is installed in it, and agentctl's packages.

Every run can read them, since keepers and SDK are made of them, and none can change them, wherever
they lie: whoever changes them is the next supervisor.
"""

import contextlib
import os
import site
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, NamedTuple

from agentctl_supervisor.policy.installations import prefix_parts
from agentctl_supervisor.policy.links import follow, is_beneath
from agentctl_supervisor.policy.places import Places

_PACKAGES: Final = ("agentctl_protocol", "agentctl_child", "agentctl_supervisor", "msgspec")
_INSTALLED: Final = ("/usr", "/lib", "/bin")


@dataclass(frozen=True)
class OwnFile:
    """A path that is ours.  ``kept``: no ``--rw`` opens it; else it is only Python's way there."""

    path: str
    why: str
    kept: bool = True


class Importing(NamedTuple):
    """Why agentctl imports from a directory, and what to do for a run that is to write there."""

    why: str
    hint: str


_BY_VARIABLE: Final = Importing(
    "PYTHONPATH", "unset PYTHONPATH; --env PYTHONPATH=... is for the run alone"
)
_BY_PROGRAM: Final = Importing(
    "its program lies there", "python -P -m agentctl_supervisor, or agentctl, is not bound to it"
)
_BY_INSTALLATION: Final = Importing(
    "it is installed there",
    "install agentctl in an environment of its own: pipx install, uv tool install",
)


def own_files(places: Places, python_path: str) -> tuple[OwnFile, ...]:
    """What runs see of ours; paths as they are written, links and all."""
    found: dict[str, OwnFile] = {}
    for file in (*_interpreter(places), *_packages(), *_search_path(places, python_path)):
        if os.path.exists(file.path):
            found.setdefault(os.path.normpath(file.path), file)
    return tuple(found.values())


@dataclass(frozen=True)
class Reserved:
    """What no run may be given to write to.

    ``kept``: the real paths of ours, without those that nobody may change anyway.
    ``imported``: the directories that decide what we import.
    """

    kept: tuple[str, ...] = ()
    imported: Mapping[str, Importing] = field(default_factory=dict)

    def why_not(self, path: str) -> tuple[str, str]:
        """Why no run may have the real *path* to write to, completing "PATH is", and a way out.

        Both are empty if one may; the way out also where there is none in particular.
        """
        if any(is_beneath(path, own) for own in self.kept):
            return "agentctl's own, or its interpreter's", ""
        if importing := self.imported.get(path):
            return f"where agentctl itself imports from ({importing.why})", importing.hint
        return "", ""


def reserved(files: tuple[OwnFile, ...], python_path: str, here: str) -> Reserved:
    """What is reserved of *files* and beside them; for the rest see `_imported_from`."""
    real = (os.path.realpath(file.path) for file in files if file.kept)
    kept = tuple(path for path in real if not any(is_beneath(path, i) for i in _INSTALLED))
    return Reserved(kept, _imported_from(python_path, here))


def _imported_from(python_path: str, here: str) -> dict[str, Importing]:
    """The real directories that decide what this program imports when it is next started.

    Each with the reason.  Whoever can write to one leaves a ``sitecustomize`` there, which
    Python executes before anything of ours.  Of an entry that is not there it is the nearest
    directory that is; where a link is on the way, the one that holds the link, too.

    *python_path*: ``PYTHONPATH`` of this process.  *here*: where the next one is started.
    """
    found: dict[str, Importing] = {}
    if python_path and not sys.flags.ignore_environment:
        for entry in python_path.split(os.pathsep):
            _add_deciding(os.path.join(here, entry), _BY_VARIABLE, found)
    for number, entry in enumerate(sys.path):
        is_the_programs = number == 0 and not sys.flags.safe_path
        why = _BY_PROGRAM if is_the_programs else _BY_INSTALLATION
        # The empty one of ``python -c`` and of interpreters that are typed to is where we are.
        with contextlib.suppress(FileNotFoundError):
            _add_deciding(os.path.abspath(entry), why, found)
    return found


def _add_deciding(path: str, why: Importing, found: dict[str, Importing]) -> None:
    while True:
        try:
            followed = follow(path)
        except OSError:
            path = os.path.dirname(path)
            continue
        break
    for decides in (followed.real, *(os.path.dirname(place) for place, _ in followed.links)):
        found.setdefault(decides, why)


def _interpreter(places: Places) -> Iterator[OwnFile]:
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    for prefix in dict.fromkeys(prefixes):
        for path in prefix_parts(prefix, places):
            yield OwnFile(path, "the interpreter")


def _packages() -> Iterator[OwnFile]:
    for name in _PACKAGES:
        # Of a package without a dot, nothing is imported for this.
        spec = find_spec(name)
        for path in (spec.submodule_search_locations or ()) if spec else ():
            yield OwnFile(path, "agentctl's own files")


def _search_path(places: Places, python_path: str) -> Iterator[OwnFile]:
    """What is installed elsewhere: what ``.pth`` files name, and the user's own packages."""
    # The spawner is isolated (-I): it has neither the script's directory nor PYTHONPATH.
    ours = sys.path if sys.flags.safe_path else sys.path[1:]
    not_its = {os.path.abspath(path) for path in python_path.split(os.pathsep) if path}
    if site.ENABLE_USER_SITE:
        ours = [*ours, site.getusersitepackages()]
    for path in ours:
        if not path.startswith("/") or path in not_its or not os.path.exists(path):
            continue
        if not places.is_broad(os.path.realpath(path)):
            yield OwnFile(path, "Python's search path", kept=False)
