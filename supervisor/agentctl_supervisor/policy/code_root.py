"""Find the directory that belongs to a named code file, so that the code finds its neighbours."""

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Final

from agentctl_supervisor.policy.installations import BIN
from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.unsuitable_directories import Places

_OF_A_PROJECT: Final = ("pyproject.toml", "setup.py", "setup.cfg", "package.json")
_MODULES: Final = "/node_modules/"
_COLLECTIONS: Final = frozenset(
    ("Desktop", "Documents", "Downloads", "Music", "Pictures", "Public", "Templates", "Videos")
)
"""Directories in a home directory in which the neighbours of a file do not belong to it:
xdg-user-dirs(1)."""


def code_root(file: str, named: str, places: Places, names: OtherNames) -> str | None:
    """Return the directory to show with *file*, or None to show the file alone.

    *file* is the real path of the path *named*.  The candidates are the root of its project, the
    root of its package, and its directory.  The first one that is not too much is returned.  A
    program in a ``bin`` directory is installed, so it has no code directory.
    """
    if os.path.basename(os.path.dirname(named)) in BIN and _MODULES not in file:
        return None
    return next((root for root in _candidates(file, places) if _is_fit(root, places, names)), None)


def _candidates(file: str, places: Places) -> Iterator[str]:
    # A Node package finds the other packages of its project in the directory above itself.
    above, modules, _ = file.partition(_MODULES)
    directory = above if modules else os.path.dirname(file)
    around = list(_upwards(directory))
    for one in around:
        if _has(one, _OF_A_PROJECT):
            yield one
            break
    packages = list(itertools.takewhile(lambda one: _has(one, ("__init__.py",)), around))
    yield from packages[-1:]
    if not _is_hidden(directory, places):
        yield directory


def _upwards(directory: str) -> Iterator[str]:
    while directory != "/":
        yield directory
        directory = os.path.dirname(directory)


def _has(directory: str, names: Iterable[str]) -> bool:
    return any(os.path.isfile(os.path.join(directory, name)) for name in names)


def _is_hidden(directory: str, places: Places) -> bool:
    """Return whether *directory* is, or lies in, a hidden directory of a home directory."""
    return any(
        part.startswith(".")
        for home in places.homes
        if is_beneath(directory, home)
        for part in os.path.relpath(directory, home).split("/")
        if part != "."
    )


def _is_fit(root: str, places: Places, names: OtherNames) -> bool:
    """Return whether a run may see all of *root* because of one file in it."""
    above, name = os.path.split(root)
    if above in places.homes and name in _COLLECTIONS:
        return False
    if places.why_no_workspace(root, names.of(root)):
        return False
    if any(places.why_too_much(held) for held in names.held_in(root)):
        return False
    return not any(is_beneath(state, root) for state in places.states)
