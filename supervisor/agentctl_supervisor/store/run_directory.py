"""Manages the directories of runs, and finds a run by its id, its name or a prefix.

::

    $AGENTCTL_HOME/runs/<id>/   spec, 00000001.log ..., intent, report
    $AGENTCTL_HOME/names/<name> symbolic link to the id of the newest run of that name

A run exists as soon as its ``spec`` exists.  Its creator holds the run's lock by then, so nobody
can mistake a run that is being created for a run whose supervisor died.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from agentctl_protocol.records import Observed, Stop
from agentctl_protocol.report import Report
from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spawning import Exited
from agentctl_protocol.spec import RunSpec, is_run_id
from agentctl_supervisor.errors import (
    AgentctlError,
    AmbiguousRunError,
    DamagedRunError,
    NameInUseError,
    NoSuchRunError,
    StateDirectoryError,
)
from agentctl_supervisor.filesystem.json_file import read_json, write_new_json
from agentctl_supervisor.filesystem.path_trust import check_ours
from agentctl_supervisor.filesystem.state_paths import (
    private_directory,
    socket_directories,
    socket_path,
    state_root,
)
from agentctl_supervisor.store.event_log import RESERVE_NAME
from agentctl_supervisor.store.finished_index import FinishedIndex, summary_of
from agentctl_supervisor.store.log_reader import segment_name
from agentctl_supervisor.store.run_lock import RunLock
from agentctl_supervisor.store.socket_files import is_supervisors

SPEC_BYTES: Final = 16 << 20
REPORT_BYTES: Final = 64 << 20
INTENT_BYTES: Final = 1 << 16

_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_SUGGESTIONS: Final = 3
_SUGGEST_AMONG: Final = 2000
_LIST_RUNS: Final = "`agentctl ps -a` lists the runs"


class RunDirectory:
    """The directory of one run, with its files and its lock."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.id: Final = path.name
        self._lock = RunLock(path)
        #: Set if we have just created the run: its name, and the id of the name's previous run.
        self.name_was: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path}{', locked by us' if self.locked_by_us else ''}>"

    @property
    def created_at(self) -> datetime:
        """The time when the run was created; without a spec, its directory's last change."""
        return datetime.fromtimestamp(_created_ns(self.path) / 1e9, UTC)

    @contextlib.contextmanager
    def while_there(self) -> Iterator[None]:
        """Wrap a block that reads the run: another process may remove the run meanwhile.

        Raises:
            NoSuchRunError: the run was removed; this replaces the block's own error.
        """
        try:
            yield
        except (AgentctlError, OSError) as error:
            if isinstance(error, NoSuchRunError) or os.path.lexists(self.path):
                raise
            raise NoSuchRunError(f"{self.id} was removed meanwhile", _LIST_RUNS) from None

    @property
    def inode(self) -> int:
        """The inode, which distinguishes the directory from an earlier one of the same name."""
        return os.stat(self.path, follow_symlinks=False).st_ino

    def read_spec(self) -> RunSpec:
        """Return the spec as stored: with the environment's names, but without their values.

        Raises:
            DamagedRunError: the spec is missing or not readable.
            NoSuchRunError: the run was removed meanwhile.
        """
        with self.while_there():
            return self._read_spec()

    def _read_spec(self) -> RunSpec:
        spec = read_json(self.path / "spec", RunSpec, SPEC_BYTES)
        if spec is None:
            raise DamagedRunError(
                f"{self.path / 'spec'} is missing", "restore the file, or remove the run"
            )
        try:
            return spec.opened()
        except ValueError as error:
            raise DamagedRunError(
                f"{self.path / 'spec'} is damaged: {error}", "restore the file, or remove the run"
            ) from None

    def read_report(self) -> Report | None:
        """Return the report of a finished run, or None if no report was written.

        Raises:
            DamagedRunError: the report is not readable.
        """
        path = self.path / "report"
        try:
            return read_json(path, Report, REPORT_BYTES)
        except DamagedRunError as error:
            # The report can be removed, because it is made from the log alone.
            raise DamagedRunError(
                str(error), f"rm {shell_word(str(path))}; it is made anew from the log"
            ) from None

    def write_report(self, report: Report) -> bool:
        """Write the report and wait until it is on the disk; False if there is one already.

        Raises:
            StateDirectoryError: the report cannot be written.
        """
        if not self._write("report", report):
            return False
        with contextlib.suppress(OSError):
            FinishedIndex(self.path.parent.parent).add([summary_of(report, self.inode)])
        return True

    @property
    def intent_path(self) -> str:
        """The file in which another process leaves a stop for the lock holder."""
        return os.path.join(self.path, "intent")

    def read_intent(self) -> Stop | None:
        """Return the stop that was decided while the holder did not answer, or None.

        Raises:
            DamagedRunError: the file is not readable.
        """
        return read_json(self.path / "intent", Stop, INTENT_BYTES)

    @property
    def exit_path(self) -> str:
        """The file in which the run's warden leaves its last message if the supervisor is gone."""
        return os.path.join(self.path, "exit")

    def read_exit(self) -> Exited | None:
        """Return how the run ended, as its warden saw it after the supervisor's death, or None.

        Raises:
            DamagedRunError: the file is not readable.
        """
        return read_json(self.path / "exit", Exited, INTENT_BYTES)

    def read_observed(self) -> Observed | None:
        """Return what the process that carried out the intent observed, or None.

        Raises:
            DamagedRunError: the file is not readable.
        """
        return read_json(self.path / "observed", Observed, INTENT_BYTES)

    def write_observed(self, observed: Observed) -> bool:
        """Leave what was observed of a stop for the holder; False if there is a file already.

        Raises:
            StateDirectoryError: the file cannot be written.
        """
        return self._write("observed", observed)

    def write_intent(self, stop: Stop) -> bool:
        """Leave *stop* for the holder, on the disk; False if there is an intent already.

        Raises:
            StateDirectoryError: the intent cannot be written.
        """
        return self._write("intent", stop)

    @property
    def locked_by_us(self) -> bool:
        """True if this object holds the run's lock."""
        return self._lock.held

    def lock(self) -> bool:
        """Take the run's lock if nobody holds it; return True if this object holds it now."""
        return self._lock.take()

    def wait_and_lock(self, timeout_s: float) -> bool:
        """Take the run's lock when its holder releases it; return True if it is held now."""
        return self._lock.wait_and_take(timeout_s)

    def wait_until_free(self) -> None:
        """Wait until nobody holds the run's lock, without a time limit.  This blocks the thread."""
        self._lock.wait_until_free()

    def unlock(self) -> None:
        """Release the run's lock."""
        self._lock.release()

    def is_held(self) -> bool:
        """Return True if a live process, including this one, holds the run's lock."""
        return self._lock.is_held()

    def _write(self, name: str, value: Report | Stop | Observed) -> bool:
        path = self.path / name
        try:
            return write_new_json(path, value)
        except OSError as error:
            first = error
        # A stop must be possible on a full disk, and so must the files about it.
        with contextlib.suppress(OSError):
            os.unlink(self.path / RESERVE_NAME)
            return write_new_json(path, value)
        raise StateDirectoryError(f"cannot write {path}: {first.strerror}") from None


class Home:
    """All runs of one state directory."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self.root: Final = root
        self.runs_path: Final = root / "runs"
        self._names_path: Final = root / "names"
        self._environ = environ

    def __repr__(self) -> str:
        return f"<Home {self.root}>"

    @classmethod
    def open(cls, environ: Mapping[str, str] | None = None, *, create: bool) -> "Home":
        """Open the state directory that *environ* (default: our own) names; create it if *create*.

        Raises:
            StateDirectoryError: the directory cannot be used, or another user can redirect it.
                Without *create*, a missing directory is no error.
        """
        if environ is None:
            environ = os.environ
        home = cls(state_root(environ), dict(environ))
        check_ours(home.root)
        if create:
            private_directory(home.runs_path)
            private_directory(home._names_path)
            _check_writable(home.runs_path)
        return home

    def create_run(self, spec: RunSpec) -> RunDirectory:
        """Create the directory of a new run, with its spec in it, and take its lock.

        Raises:
            NameInUseError: a live run has the spec's name.
            StateDirectoryError: the directory cannot be created.
        """
        try:
            if spec.name is None:
                return self._make(spec)
            with self._names_lock():
                self._check_name_is_free(spec.name)
                directory = self._make(spec)
                directory.name_was = self._point(spec.name, directory.id)
                return directory
        except OSError as error:
            raise StateDirectoryError(
                f"cannot make a run in {self.runs_path}: {error.strerror}",
                "set AGENTCTL_HOME to a directory with room that you can write to",
            ) from None

    def discard(self, directory: RunDirectory) -> None:
        """Remove a run that we created and that never began.

        Its name is given back to the run that had it before.
        """
        directory.unlock()
        _remove_tree(directory.path)
        if directory.name_was is None:
            return
        name, before = directory.name_was
        with contextlib.suppress(OSError), self._names_lock():
            if os.readlink(self._names_path / name) != directory.id:
                return
            if before:
                self._point(name, before)
            else:
                (self._names_path / name).unlink()

    def runs(self) -> list[RunDirectory]:
        """Return all runs, the newest last.

        Raises:
            StateDirectoryError: the directory cannot be read.
        """
        made = [self.runs_path / run_id for run_id in self._ids() if self._exists(run_id)]
        return [RunDirectory(path) for path in sorted(made, key=lambda p: (_created_ns(p), p))]

    def inodes(self) -> dict[str, int]:
        """Return the inodes of the directory's entries by name; `made` tells which are runs.

        Raises:
            StateDirectoryError: the directory cannot be read.
        """
        try:
            with os.scandir(self.runs_path) as entries:
                return {entry.name: entry.inode() for entry in entries}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StateDirectoryError(f"cannot read {self.runs_path}: {error.strerror}") from None

    def made(self, run_id: str) -> RunDirectory | None:
        """Return the run *run_id*; None if there is no such run, or it is not yet complete."""
        return self._by_id(run_id)

    @property
    def finished(self) -> FinishedIndex:
        """The index of the finished runs."""
        return FinishedIndex(self.root)

    def find(self, ref: str) -> RunDirectory:
        """Find a run by *ref*: an id, a name (its newest run), or a unique prefix of either.

        Raises:
            NoSuchRunError: there is no such run.
            AmbiguousRunError: the prefix fits more than one run.
        """
        exact = self._by_id(ref) or self._by_name(ref)
        if exact is not None:
            return exact
        fitting: dict[str, str] = {}
        if ref:
            fitting = {i: i for i in self._ids() if i.startswith(ref) and self._exists(i)}
            for name in self._names():
                if name.startswith(ref) and (named := self._by_name(name)) is not None:
                    fitting[named.id] = f"{name} ({named.id})"
        if len(fitting) == 1:
            return RunDirectory(self.runs_path / next(iter(fitting)))
        if fitting:
            shown = ", ".join(sorted(fitting.values())[:_SUGGESTIONS])
            more = ", ..." if len(fitting) > _SUGGESTIONS else ""
            raise AmbiguousRunError(
                f"{_shown(ref)} fits {len(fitting)} runs: {shown}{more}", "give more of it"
            )
        raise NoSuchRunError(f"no such run: {_shown(ref)}", self._did_you_mean(ref))

    def forget_names(self) -> None:
        """Remove the names of runs that are gone."""
        with contextlib.suppress(OSError), self._names_lock():
            for name in self._names():
                if self._by_name(name) is None:
                    # No run is being created meanwhile: creating one takes the same lock.
                    (self._names_path / name).unlink()

    def socket_path(self, name: str) -> str:
        """Return a path for the socket *name*; its private directory is created if necessary.

        Raises:
            StateDirectoryError: there is no suitable directory.
        """
        return socket_path(self._environ, name)

    def _make(self, spec: RunSpec) -> RunDirectory:
        directory = self._claim_id()
        try:
            if not directory.lock():
                raise StateDirectoryError(f"{directory.path} is locked by somebody else")
            # The log's first sync makes it durable (`LogWriter.sync`): a start need not wait.
            write_new_json(directory.path / "spec", spec.stored(), durable=False)
        except BaseException:
            directory.unlock()
            _remove_tree(directory.path)
            raise
        return directory

    def _claim_id(self) -> RunDirectory:
        while True:
            path = self.runs_path / ("r-" + "".join(_BASE32[byte & 31] for byte in os.urandom(8)))
            try:
                path.mkdir(0o700)
            except FileExistsError:
                continue
            return RunDirectory(path)

    @contextlib.contextmanager
    def _names_lock(self) -> Iterator[None]:
        fd = os.open(self._names_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _check_name_is_free(self, name: str) -> None:
        newest = self._by_name(name)
        # After the report is written, the holder has only to release the lock and exit.
        if newest is not None and newest.is_held() and not (newest.path / "report").exists():
            raise NameInUseError(
                f"a run named {name} is alive: {newest.id}",
                f"agentctl stop {name}, or choose another name",
            )

    def _point(self, name: str, run_id: str) -> tuple[str, str]:
        """Give *run_id* the *name*; return the name and the id of the run that had it before."""
        before = ""
        with contextlib.suppress(OSError):
            before = os.readlink(self._names_path / name)
        temporary = self._names_path / f".{run_id}"
        os.symlink(run_id, temporary)
        os.replace(temporary, self._names_path / name)
        return name, before

    def _by_id(self, ref: str) -> RunDirectory | None:
        if is_run_id(ref) and self._exists(ref):
            return RunDirectory(self.runs_path / ref)
        return None

    def _by_name(self, ref: str) -> RunDirectory | None:
        if not ref or "/" in ref or "\0" in ref or ref.startswith("."):
            return None
        try:
            return self._by_id(os.readlink(self._names_path / ref))
        except (OSError, UnicodeEncodeError):
            return None

    def _exists(self, run_id: str) -> bool:
        path = self.runs_path / run_id
        # A log without a spec is damage to show; with neither, the run is still being created.
        return (path / "spec").exists() or (path / segment_name(1)).exists()

    def _ids(self) -> list[str]:
        return [name for name in _listed(self.runs_path) if is_run_id(name)]

    def sockets(self) -> Iterator[str]:
        """Yield the sockets of all supervisors of this user, including dead ones."""
        for directory in socket_directories(self._environ):
            for name in _listed(directory):
                if is_supervisors(name):
                    yield os.path.join(directory, name)

    def _names(self) -> list[str]:
        return [name for name in _listed(self._names_path) if not name.startswith(".")]

    def _did_you_mean(self, ref: str) -> str:
        import difflib

        names = [*self._names(), *self._ids()][:_SUGGEST_AMONG]
        close = difflib.get_close_matches(ref[:100], names, n=_SUGGESTIONS)
        if not close:
            return _LIST_RUNS
        return f"did you mean {' or '.join(close)}? {_LIST_RUNS}"


def _remove_tree(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _created_ns(path: Path) -> int:
    for candidate in (path / "spec", path):
        try:
            return os.stat(candidate).st_mtime_ns
        except OSError:
            continue
    return 0


def _listed(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateDirectoryError(f"cannot read {path}: {error.strerror}") from None


def _check_writable(path: Path) -> None:
    # access(2) asks the kernel, which also knows read-only mounts; mode bits do not limit root.
    if not os.access(path, os.W_OK | os.X_OK):
        raise StateDirectoryError(
            f"cannot write to {path}", "set AGENTCTL_HOME to a directory that you can write to"
        )


def _shown(ref: str) -> str:
    text = ref if len(ref) <= 60 else ref[:60] + "..."
    return ascii(text)
