"""Removes finished runs, and nothing else.

A run is removed while its lock is held, so it cannot be one that lives.  It vanishes from all
lists at once, by a rename, before its files go one by one; what a prune that was cut short
left of that is removed by the next one.  No link is followed anywhere.
"""

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from agentctl_protocol.report import Report
from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.store.finished_index import Summary, ended_s
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.store.socket_files import remove_if_dead

_GOING: Final = ".pruned-"
_REMOVE_S: Final = 60.0


class Candidate(NamedTuple):
    """A finished run, and how many bytes of disk it takes."""

    run: Report | Summary
    bytes: int


class Wanted(NamedTuple):
    """Which runs are to go: those that ended before ``before_s``, all but the newest ``keep``,
    the oldest until the rest takes at most ``max_bytes``.  None: not for this reason.
    """

    before_s: float | None = None
    keep: int | None = None
    max_bytes: int | None = None


def chosen(finished: Sequence[Candidate], wanted: Wanted) -> list[Candidate]:
    """Those of *finished*, which are oldest first, that are to go.  Pure."""
    going = []
    left_bytes = sum(candidate.bytes for candidate in finished)
    for at, candidate in enumerate(finished):
        if (
            (wanted.before_s is not None and ended_s(candidate.run) < wanted.before_s)
            or (wanted.keep is not None and at < len(finished) - wanted.keep)
            or (wanted.max_bytes is not None and left_bytes > wanted.max_bytes)
        ):
            going.append(candidate)
            left_bytes -= candidate.bytes
    return going


def size_of(home: Home, run_id: str) -> int:
    """Bytes of disk that the files of a run take; 0 if it is gone."""
    from agentctl_supervisor.filesystem.open_beneath import READ
    from agentctl_supervisor.workspace.changes import Walk

    total = 0

    def add(_: int, __: str, found: os.stat_result) -> None:
        nonlocal total
        total += found.st_blocks * 512

    with contextlib.suppress(OSError):
        fd = os.open(home.runs_path / run_id, READ)
        try:
            # A private workspace counts, up to its first 100,000 files.
            Walk(sys.maxsize, on_entry=add).run(fd)
        finally:
            os.close(fd)
    return total


def remove(home: Home, run_id: str) -> bool:
    """Remove a finished run; False if it is gone already.

    Raises:
        StateDirectoryError: it cannot be removed, or it is not finished.
    """
    directory = home.made(run_id)
    if directory is None:
        return False
    if not directory.lock():
        raise StateDirectoryError(f"{run_id} is not finished, or somebody is looking at it")
    try:
        if directory.read_report() is None:
            raise StateDirectoryError(f"{run_id} has no report", f"agentctl show {run_id}")
        going = home.runs_path / f"{_GOING}{run_id}"
        os.rename(directory.path, going)
        # Somebody else's `clean_up` may be at it, too.
        if not _remove_tree(going):
            raise StateDirectoryError(
                f"{run_id}: its files cannot all be removed", f"rm -r {shell_word(str(going))}"
            )
    except OSError as error:
        raise StateDirectoryError(f"{run_id} cannot be removed: {error.strerror}") from None
    finally:
        directory.unlock()
    return True


def clean_up(home: Home) -> None:
    """Remove what cut-short prunes and dead supervisors left, and names and index entries of
    runs that are gone.
    """
    for name in home.inodes():
        if name.startswith(_GOING):
            _remove_tree(home.runs_path / name)
    for socket in home.sockets():
        remove_if_dead(socket)
    home.forget_names()
    index, there = home.finished, home.inodes()
    index.rewrite([e for e in index.read().values() if there.get(e.id) == e.inode])


def candidates(home: Home, finished: Iterable[Report | Summary]) -> list[Candidate]:
    """*finished* with their sizes, those that ended first in front."""
    found = [Candidate(run, size_of(home, run.id)) for run in finished]
    return sorted(found, key=lambda one: (ended_s(one.run), one.run.id))


def _remove_tree(path: Path) -> bool:
    """Remove what is at *path*, a private workspace in it too; whether it is gone."""
    from agentctl_supervisor.workspace.removal import remove_tree

    return remove_tree(path, _REMOVE_S)
