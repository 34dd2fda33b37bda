"""The directories in which runs are kept, and how a run is found by what people call it.

::

    $AGENTCTL_HOME/runs/<id>/   spec, 00000001.log ..., intent, report
    $AGENTCTL_HOME/names/<name> symbolic link to the id of the newest run of that name

A run exists once its ``spec`` is there.  The maker has the run's lock by then, so nobody
can take a run that is just being made for one whose supervisor died.
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
    """What is kept of one run."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.id: Final = path.name
        self._lock = RunLock(path)
        #: Of a run that we have just made: its name, and the id of the run that had it before.
        self.name_was: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path}{', locked by us' if self.locked_by_us else ''}>"

    @property
    def created_at(self) -> datetime:
        """When the run was made; for a run whose spec is gone, when its directory last changed."""
        return datetime.fromtimestamp(_created_ns(self.path) / 1e9, UTC)

    @contextlib.contextmanager
    def while_there(self) -> Iterator[None]:
        """A block that reads the run: it may be removed meanwhile.

        Raises:
            NoSuchRunError: it was, whatever the block made of that.
        """
        try:
            yield
        except (AgentctlError, OSError) as error:
            if isinstance(error, NoSuchRunError) or os.path.lexists(self.path):
                raise
            raise NoSuchRunError(f"{self.id} was removed meanwhile", _LIST_RUNS) from None

    @property
    def inode(self) -> int:
        """What tells the directory from an earlier one of the same name."""
        return os.stat(self.path, follow_symlinks=False).st_ino

    def read_spec(self) -> RunSpec:
        """The spec as it was stored: with the names of the environment, without its values.

        Raises:
            DamagedRunError: it is missing or not readable.
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
        """The report of a run that is over, or None if none has been written.

        Raises:
            DamagedRunError: it is not readable.
        """
        path = self.path / "report"
        try:
            return read_json(path, Report, REPORT_BYTES)
        except DamagedRunError as error:
            # A report is made from the log and nothing else.
            raise DamagedRunError(
                str(error), f"rm {shell_word(str(path))}; it is made anew from the log"
            ) from None

    def write_report(self, report: Report) -> bool:
        """Write the report, once; False if there is one.  Blocks until it is on the disk.

        Raises:
            StateDirectoryError: it cannot be written.
        """
        if not self._write("report", report):
            return False
        with contextlib.suppress(OSError):
            FinishedIndex(self.path.parent.parent).add([summary_of(report, self.inode)])
        return True

    @property
    def intent_path(self) -> str:
        """Where somebody else leaves a stop for the holder."""
        return os.path.join(self.path, "intent")

    def read_intent(self) -> Stop | None:
        """The stop that somebody decided on while the holder did not answer, or None.

        Raises:
            DamagedRunError: it is not readable.
        """
        return read_json(self.path / "intent", Stop, INTENT_BYTES)

    @property
    def exit_path(self) -> str:
        """Where the run's warden leaves its last word if the supervisor is gone."""
        return os.path.join(self.path, "exit")

    def read_exit(self) -> Exited | None:
        """How the run ended, as its warden saw it after the supervisor's death, or None.

        Raises:
            DamagedRunError: it is not readable.
        """
        return read_json(self.path / "exit", Exited, INTENT_BYTES)

    def read_observed(self) -> Observed | None:
        """What was seen by whoever carried out the intent, or None.

        Raises:
            DamagedRunError: it is not readable.
        """
        return read_json(self.path / "observed", Observed, INTENT_BYTES)

    def write_observed(self, observed: Observed) -> bool:
        """Leave what was seen of a stop for the holder; False if there is something already.

        Raises:
            StateDirectoryError: it cannot be written.
        """
        return self._write("observed", observed)

    def write_intent(self, stop: Stop) -> bool:
        """Leave *stop* for the holder; False if there is an intent.  Blocks until it is on disk.

        Raises:
            StateDirectoryError: it cannot be written.
        """
        return self._write("intent", stop)

    @property
    def locked_by_us(self) -> bool:
        """Whether this object holds the run's lock."""
        return self._lock.held

    def lock(self) -> bool:
        """Take the run's lock if nobody holds it; whether we hold it now."""
        return self._lock.take()

    def wait_and_lock(self, timeout_s: float) -> bool:
        """Take the run's lock as soon as its holder lets go; whether we hold it now."""
        return self._lock.wait_and_take(timeout_s)

    def wait_until_free(self) -> None:
        """Return once nobody holds the run's lock.  Blocks, for as long as that takes."""
        self._lock.wait_until_free()

    def unlock(self) -> None:
        """Give the run's lock back."""
        self._lock.release()

    def is_held(self) -> bool:
        """Whether somebody alive, perhaps we, holds the run's lock."""
        return self._lock.is_held()

    def _write(self, name: str, value: Report | Stop | Observed) -> bool:
        path = self.path / name
        try:
            return write_new_json(path, value)
        except OSError as error:
            first = error
        # A stop, and the word about it, must be possible on a full disk.
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
        """The state directory that *environ* (default: our own) names; made if *create*.

        Raises:
            StateDirectoryError: it cannot be used, or somebody else can lead it elsewhere; one
                that is only missing is no error without *create*.
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
        """A new run's directory, with its spec in it and its lock held by us.

        Raises:
            NameInUseError: a live run has the spec's name.
            StateDirectoryError: it cannot be made.
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
        """Remove a run that we made and that never began.

        Its name is that of the run again which had it before.
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
        """All runs, the newest last.

        Raises:
            StateDirectoryError: the directory cannot be read.
        """
        made = [self.runs_path / run_id for run_id in self._ids() if self._exists(run_id)]
        return [RunDirectory(path) for path in sorted(made, key=lambda p: (_created_ns(p), p))]

    def inodes(self) -> dict[str, int]:
        """The inode of all that is in the directory of runs, by its name: runs, if they are `made`.

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
        """The run *run_id*, unless that is none, or still being made, or gone."""
        return self._by_id(run_id)

    @property
    def finished(self) -> FinishedIndex:
        """The index of the finished runs."""
        return FinishedIndex(self.root)

    def find(self, ref: str) -> RunDirectory:
        """The run that *ref* means: an id, a name (its newest run), or a unique prefix of either.

        Raises:
            NoSuchRunError: there is none.
            AmbiguousRunError: the prefix fits more than one.
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
                    # No name is in the way of a run that is being made: that takes the lock, too.
                    (self._names_path / name).unlink()

    def socket_path(self, name: str) -> str:
        """A path for the socket *name*, in a directory that is ours alone and made if need be.

        Raises:
            StateDirectoryError: there is no such place.
        """
        return socket_path(self._environ, name)

    def _make(self, spec: RunSpec) -> RunDirectory:
        directory = self._claim_id()
        try:
            if not directory.lock():
                raise StateDirectoryError(f"{directory.path} is locked by somebody else")
            # Durable with the log's first sync (`LogWriter.sync`): a start waits for no disk.
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
        # A holder that has written the report only has to leave.
        if newest is not None and newest.is_held() and not (newest.path / "report").exists():
            raise NameInUseError(
                f"a run named {name} is alive: {newest.id}",
                f"agentctl stop {name}, or choose another name",
            )

    def _point(self, name: str, run_id: str) -> tuple[str, str]:
        """Give *run_id* the *name*; return that, and whose it was."""
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
        # A log without a spec is damage that must be seen; neither is a run not made yet.
        return (path / "spec").exists() or (path / segment_name(1)).exists()

    def _ids(self) -> list[str]:
        return [name for name in _listed(self.runs_path) if is_run_id(name)]

    def sockets(self) -> Iterator[str]:
        """The sockets of all supervisors of this user, dead ones among them."""
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
    # Asks the kernel, which knows about read-only mounts; root passes by every mode.
    if not os.access(path, os.W_OK | os.X_OK):
        raise StateDirectoryError(
            f"cannot write to {path}", "set AGENTCTL_HOME to a directory that you can write to"
        )


def _shown(ref: str) -> str:
    text = ref if len(ref) <= 60 else ref[:60] + "..."
    return ascii(text)
