"""Removes finished runs, and nothing else.

The lock of a run is held while the run is removed, so it cannot be a live run.  A rename first
removes the run from all lists at once, then its files are removed one by one.  If a prune is
interrupted, the next one removes the rest.  No symbolic link is ever followed.
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
    """A finished run, and the bytes of disk that it takes."""

    run: Report | Summary
    bytes: int


class Wanted(NamedTuple):
    """The reasons to remove a run; None: no run is removed for this reason.

    ``before_s``: the run ended before this time.  ``keep``: it is not one of this many newest
    runs.  ``max_bytes``: the oldest runs go until the rest takes at most this many bytes.
    """

    before_s: float | None = None
    keep: int | None = None
    max_bytes: int | None = None


def chosen(finished: Sequence[Candidate], wanted: Wanted) -> list[Candidate]:
    """Return the runs of *finished* (oldest first) that are to be removed.  Pure."""
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
    """Return the bytes of disk that the files of a run take; 0 if it is gone."""
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
        StateDirectoryError: the run cannot be removed, or it is not finished.
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
        # A `clean_up` of another process may remove the same files.
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
    """Remove the remains of interrupted prunes and dead supervisors.

    The names and the index entries of runs that are gone are removed too.
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
    """Return *finished* with their sizes, in the order in which the runs ended."""
    found = [Candidate(run, size_of(home, run.id)) for run in finished]
    return sorted(found, key=lambda one: (ended_s(one.run), one.run.id))


def _remove_tree(path: Path) -> bool:
    """Remove *path* with any private workspace in it; return True if it is gone."""
    from agentctl_supervisor.workspace.removal import remove_tree

    return remove_tree(path, _REMOVE_S)
