"""Collect the pieces that all runs of a caller share: system, agentctl's files, search paths.

The pieces are found once for all runs that start within seconds of each other, because that takes
about a hundred system calls.  A path that disappears meanwhile is left out of the view, or the run
is refused.
"""

import os
import time
from functools import lru_cache
from typing import Final

from agentctl_protocol.spawning import Cover
from agentctl_protocol.vocabulary import Network
from agentctl_supervisor.policy import system_view
from agentctl_supervisor.policy.installations import beside
from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.own_files import OwnFile, own_files
from agentctl_supervisor.policy.unsuitable_directories import Places
from agentctl_supervisor.policy.view import Gathered, Piece, Rank

_KEPT_S: Final = 5.0


def system(network: Network) -> tuple[Piece, ...]:
    """Return the pieces of the system: programs, libraries and the files of /etc that they need."""
    return _system(network, moment())


def ours(places: Places) -> tuple[tuple[OwnFile, ...], tuple[Piece, ...]]:
    """Return the own files, and pieces for them and for the covers over agentctl's state."""
    return _ours(places, moment())


def searched(
    path: str, python_path: str, places: Places, writable: tuple[str, ...]
) -> tuple[Piece, ...]:
    """Return pieces for the directories of ``PATH`` and ``PYTHONPATH``.

    *writable*: see `Gathered`.
    """
    return _searched(path, python_path, places, writable, moment())


def moment() -> int:
    """Return a number that stays the same for a few seconds."""
    return int(time.monotonic() / _KEPT_S)


@lru_cache(maxsize=4)
def _system(network: Network, _: int) -> tuple[Piece, ...]:
    gathered = Gathered()
    for path in system_view.system_paths():
        gathered.show(path, "the system", Rank.SEEN, mapped=False)
    for path in system_view.etc_paths():
        gathered.show(path, "the system", Rank.SEEN, mapped=False, optional=True)
    if network is Network.HOST:
        gathered.show(system_view.RESOLVER, "the network", Rank.SEEN, mapped=False)
    return gathered.all()


@lru_cache(maxsize=4)
def _ours(places: Places, _: int) -> tuple[tuple[OwnFile, ...], tuple[Piece, ...]]:
    files = own_files(places)
    gathered = Gathered()
    for file in files:
        rank = Rank.KEPT if file.kept else Rank.SEEN
        gathered.show(file.path, file.why, rank)
    for state in places.states:
        gathered.put(Piece(Cover(os.fsencode(state)), "agentctl's state", Rank.COVERED))
    return files, gathered.all()


@lru_cache(maxsize=16)
def _searched(
    path: str, python_path: str, places: Places, writable: tuple[str, ...], _: int
) -> tuple[Piece, ...]:
    gathered = Gathered(writable)
    for name, value in (("PATH", path), ("PYTHONPATH", python_path)):
        for entry in entries(value):
            real = os.path.realpath(entry)
            if places.is_broad(real) or not os.access(real, os.R_OK | os.X_OK):
                continue
            if any(is_beneath(real, state) for state in places.states):
                continue
            gathered.show(entry, name, Rank.SEEN, optional=True)
            # In a directory that runs can write to, a run may have made what looks installed.
            if name == "PATH" and not any(is_beneath(real, path) for path in writable):
                for needed in beside(entry, places):
                    gathered.show(needed, "beside what is on PATH", Rank.SEEN, optional=True)
    return gathered.all()


def entries(variable: str) -> list[str]:
    """Return the absolute directories of a search path.

    Relative ones are left out, since their meaning depends on the run's directory.
    """
    return [entry for entry in variable.split(os.pathsep) if entry.startswith("/")]
