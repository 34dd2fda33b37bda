"""Where runs are kept: made once, found by what people call them, and locked by one."""

import multiprocessing
import os
import pwd
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentctl_protocol.records import Stop
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spec import RunSpec, is_run_id
from agentctl_protocol.vocabulary import Reason, Result, State
from agentctl_supervisor.errors import (
    AgentctlError,
    AmbiguousRunError,
    DamagedRunError,
    NameInUseError,
    NoSuchRunError,
    StateDirectoryError,
)
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.log_check import BROKEN

TRUE = RunSpec(argv=("/bin/true",))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def runs(state: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(state)}, create=True)


def named(name: str) -> RunSpec:
    return RunSpec(argv=("/bin/true",), name=name)


def stop(detail: str = "") -> Stop:
    return Stop(Result.STOPPED, Reason.USER, detail, Actor("uid", "0"), 5.0, 2.0)


def report(run: RunDirectory) -> Report:
    return Report(id=run.id, state=State.FINISHED, created_at=datetime.now(UTC))


# --- where ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({"AGENTCTL_HOME": "/a/b", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/agentctl"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/agentctl"),
        ({"AGENTCTL_HOME": "", "HOME": "/h"}, "/h/.local/state/agentctl"),
        ({"HOME": "/h"}, "/h/.local/state/agentctl"),
    ],
)
def test_the_environment_says_where_runs_live(environ: dict[str, str], root: str) -> None:
    """Our own variable first, then the XDG directory, then the home directory."""
    assert Home.open(environ, create=False).root == Path(root)


def test_without_home_the_user_data_base_is_asked() -> None:
    """A service manager may set no HOME."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert Home.open({}, create=False).root == Path(home, ".local/state/agentctl")


def test_a_uid_without_home_gets_a_named_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a uid that nobody knows."""

    def unknown(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(StateDirectoryError, match="no home directory") as caught:
        Home.open({}, create=False)
    assert "AGENTCTL_HOME" in caught.value.hint


def test_only_create_makes_directories(state: Path) -> None:
    """A command that looks leaves no trace."""
    runs = Home.open({"AGENTCTL_HOME": str(state)}, create=False)
    assert runs.runs() == []
    with pytest.raises(NoSuchRunError):
        runs.find("x")
    assert not state.exists()


def test_state_is_private(runs: Home) -> None:
    """Nobody else reads what an agent said."""
    run = runs.create_run(TRUE)
    for path in (runs.runs_path, run.path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((run.path / "spec").stat().st_mode) == 0o600


@pytest.mark.parametrize("create", [True, False])
def test_a_file_in_the_place_of_the_directory_is_a_named_error(state: Path, create: bool) -> None:
    """The message names the path, the hint another way."""
    state.write_text("")
    with pytest.raises(StateDirectoryError, match=str(state)) as caught:
        Home.open({"AGENTCTL_HOME": str(state)}, create=create)
    assert caught.value.hint


def test_a_directory_that_others_can_write_to_is_refused(runs: Home, state: Path) -> None:
    """Somebody else could have put anything into it."""
    runs.runs_path.chmod(0o777)
    with pytest.raises(StateDirectoryError, match="others can write") as caught:
        Home.open({"AGENTCTL_HOME": str(state)}, create=True)
    assert caught.value.hint == f"chmod go-w {runs.runs_path}"


@needs(Capability.ROOT)
def test_a_directory_of_somebody_else_is_refused(runs: Home, state: Path) -> None:
    """Even root does not write where another user can play with links."""
    os.chown(runs.runs_path, 12345, 12345)
    with pytest.raises(StateDirectoryError, match="belongs to uid 12345"):
        Home.open({"AGENTCTL_HOME": str(state)}, create=True)


@needs(Capability.ROOT)
def test_a_read_only_file_system_is_a_named_error(runs: Home, state: Path) -> None:
    """Opening it to look works, opening it to run does not; nothing shows a traceback."""
    run = runs.create_run(TRUE)
    program = f"""
import sys
from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.store.run_directory import Home
environ = {{"AGENTCTL_HOME": {str(state)!r}}}
print(Home.open(environ, create=False).find({run.id!r}).read_spec().argv[0])
try:
    Home.open(environ, create=True)
except StateDirectoryError as error:
    print(error)
"""
    mount = f'mount --bind {state} {state} && mount -o remount,ro,bind {state} && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["/bin/true", f"cannot write to {runs.runs_path}"]


# --- sockets ----------------------------------------------------------------


def test_sockets_live_in_a_private_directory(runs: Home, state: Path) -> None:
    """With AGENTCTL_HOME they are beside the runs."""
    path = runs.socket_path("supervisor.sock")
    assert path == f"{state}/run/supervisor.sock"
    assert stat.S_IMODE(os.stat(f"{state}/run").st_mode) == 0o700


def test_a_socket_path_too_long_to_bind_gets_a_short_one(tmp_path: Path) -> None:
    """sun_path has 107 bytes; two homes never share a socket."""
    paths = set()
    for n in range(2):
        deep = tmp_path / ("d" * 100) / str(n)
        paths.add(Home.open({"AGENTCTL_HOME": str(deep)}, create=True).socket_path("s.sock"))
    assert all(len(path) <= 107 for path in paths)
    assert len(paths) == 2
    for path in paths:
        parent = Path(path).parent
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700
        parent.rmdir()


def test_a_runtime_directory_that_is_a_link_is_refused(runs: Home, state: Path) -> None:
    """A link in its place could lead anywhere."""
    (state / "elsewhere").mkdir(mode=0o700)
    (state / "run").symlink_to(state / "elsewhere")
    with pytest.raises(StateDirectoryError, match="not a directory"):
        runs.socket_path("s.sock")


def test_an_open_runtime_directory_is_refused(runs: Home, state: Path) -> None:
    """Whoever can write there could put a socket in the place of ours."""
    (state / "run").mkdir()
    (state / "run").chmod(0o777)
    with pytest.raises(StateDirectoryError, match="others can write"):
        runs.socket_path("s.sock")


def test_the_xdg_runtime_directory_is_used_if_it_is_ours(tmp_path: Path) -> None:
    """A missing one is passed over."""
    xdg = tmp_path / "xdg"
    environ = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(xdg)}
    runs = Home.open(environ, create=True)
    assert not runs.socket_path("s").startswith(str(xdg))
    xdg.mkdir(mode=0o700)
    assert runs.socket_path("s") == f"{xdg}/agentctl/s"


# --- making and finding -----------------------------------------------------


def test_a_new_run_is_locked_and_has_its_spec(runs: Home) -> None:
    """Nobody can take it for one whose supervisor died."""
    spec = RunSpec(argv=["/bin/echo", "hi"], tags={"k": "v"})
    run = runs.create_run(spec)
    assert is_run_id(run.id)
    assert run.locked_by_us
    assert RunDirectory(run.path).is_held()
    assert run.read_spec() == spec


def test_values_of_the_environment_are_never_stored(runs: Home) -> None:
    """Their names are."""
    run = runs.create_run(RunSpec(argv=("/bin/true",), env={"TOKEN": "hunter2"}))
    assert b"hunter2" not in (run.path / "spec").read_bytes()
    assert run.read_spec().env_names == ("TOKEN",)


def test_arguments_that_are_not_utf8_come_back(runs: Home) -> None:
    """An argument is bytes to the kernel, and the spec keeps them."""
    argv = ["/bin/echo", os.fsdecode(b"\xff\xfe"), "\u00e9", '"\\ud800']
    assert runs.create_run(RunSpec(argv=argv)).read_spec().argv == argv


def test_runs_are_listed_the_newest_last(runs: Home) -> None:
    """In the order in which they were made."""
    made = [runs.create_run(TRUE).id for _ in range(5)]
    assert [run.id for run in runs.runs()] == made


def test_foreign_names_among_the_runs_are_passed_over(runs: Home) -> None:
    """Neither files, nor directories of other names, nor a run that is just being made."""
    run = runs.create_run(TRUE)
    (runs.runs_path / "notes.txt").write_text("")
    (runs.runs_path / "lost+found").mkdir()
    (runs.runs_path / "r-aaaaaaaa").mkdir()
    (runs.runs_path / "r-bbbbbbbb").write_text("")
    assert [found.id for found in runs.runs()] == [run.id]
    with pytest.raises(NoSuchRunError):
        runs.find("r-aaaaaaaa")


def test_a_run_is_found_by_id_name_and_unique_prefix(runs: Home) -> None:
    """Whatever people call it."""
    one, two = runs.create_run(named("crawler")), runs.create_run(named("indexer"))
    for ref in (one.id, one.id[:8], "crawler", "craw"):
        assert runs.find(ref).id == one.id
    assert runs.find("i").id == two.id


def test_a_name_means_its_newest_run(runs: Home) -> None:
    """A name may be used again once its run has finished."""
    first = runs.create_run(named("crawler"))
    first.unlock()
    second = runs.create_run(named("crawler"))
    assert runs.find("crawler").id == second.id
    assert runs.find("craw").id == second.id
    assert runs.find(first.id).id == first.id


def test_a_run_that_never_began_gives_its_name_back(runs: Home) -> None:
    """What was refused is no reason to forget the run that had the name before."""
    first = runs.create_run(named("nightly"))
    first.unlock()
    runs.discard(runs.create_run(named("nightly")))
    assert runs.find("nightly").id == first.id
    runs.discard(runs.create_run(named("alone")))
    with pytest.raises(NoSuchRunError):
        runs.find("alone")
    assert not os.path.lexists(runs.root / "names/alone")


def test_an_exact_name_wins_over_a_prefix(runs: Home) -> None:
    """`web` is `web`, also where there is a `web-2`."""
    web, _ = runs.create_run(named("web")), runs.create_run(named("web-2"))
    assert runs.find("web").id == web.id


def test_an_ambiguous_prefix_names_what_it_fits(runs: Home) -> None:
    """With the exit code for a usage error."""
    for n in range(5):
        runs.create_run(named(f"web-{n}"))
    with pytest.raises(AmbiguousRunError, match=r"'web' fits 5 runs: web-0 \(r-.*\.\.\.") as caught:
        runs.find("web")
    assert caught.value.exit_code == 2
    with pytest.raises(AmbiguousRunError):
        runs.find("r-")


@pytest.mark.parametrize(
    "ref", ["", "nope", "a/b", "../runs", "\n\x1b[31m", "x" * 10_000, "\0", "r-????????", "\udcff"]
)
def test_what_is_no_run_is_a_named_error_on_one_line(runs: Home, ref: str) -> None:
    """Nothing that is typed leaves the directory or drives the terminal."""
    runs.create_run(named("crawler"))
    with pytest.raises(NoSuchRunError) as caught:
        runs.find(ref)
    text = f"{caught.value} {caught.value.hint}"
    assert caught.value.exit_code == 4
    assert text.isprintable()
    assert len(text) < 300


def test_a_near_miss_gets_a_suggestion(runs: Home) -> None:
    """As people know it from git."""
    runs.create_run(named("crawler"))
    with pytest.raises(NoSuchRunError) as caught:
        runs.find("crawlre")
    assert "did you mean crawler?" in caught.value.hint


def test_the_name_of_a_live_run_is_taken(runs: Home) -> None:
    """And a refused run leaves nothing behind."""
    live = runs.create_run(named("crawler"))
    with pytest.raises(NameInUseError, match=live.id) as caught:
        runs.create_run(named("crawler"))
    assert caught.value.exit_code == 125
    assert [run.id for run in runs.runs()] == [live.id]


def test_of_twenty_that_want_one_name_exactly_one_gets_it(runs: Home) -> None:
    """Names are handed out under a lock."""
    barrier = threading.Barrier(20)

    def make(_: int) -> RunDirectory | None:
        barrier.wait()
        try:
            return runs.create_run(named("crawler"))
        except NameInUseError:
            return None

    with ThreadPoolExecutor(20) as pool:
        made = [run for run in pool.map(make, range(20)) if run is not None]
    assert len(made) == 1
    assert runs.find("crawler").id == made[0].id
    assert len(runs.runs()) == 1


def test_a_name_whose_run_was_removed_is_free(runs: Home) -> None:
    """Removing a run's directory by hand is allowed."""
    run = runs.create_run(named("crawler"))
    run.unlock()
    (run.path / "spec").unlink()
    run.path.rmdir()
    with pytest.raises(NoSuchRunError):
        runs.find("crawler")
    assert runs.find(runs.create_run(named("crawler")).id).read_spec().name == "crawler"


# --- the lock ---------------------------------------------------------------


def test_one_holder_at_a_time(runs: Home) -> None:
    """The next gets it when the first lets go."""
    run = runs.create_run(TRUE)
    other = RunDirectory(run.path)
    assert not other.lock()
    run.unlock()
    assert not other.is_held()
    assert other.lock()
    assert other.lock()
    assert run.is_held()
    assert not run.lock()


def test_looking_never_makes_a_free_lock_seem_taken(runs: Home) -> None:
    """Those who only ask whether it is held do not get in the way of one who takes it."""
    run = runs.create_run(TRUE)
    run.unlock()
    stop_looking = threading.Event()

    def look() -> None:
        while not stop_looking.is_set():
            RunDirectory(run.path).is_held()

    lookers = [threading.Thread(target=look) for _ in range(4)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            assert run.lock()
            run.unlock()
    finally:
        stop_looking.set()
        for looker in lookers:
            looker.join()


def test_waiting_for_the_lock_ends_with_the_holder(runs: Home) -> None:
    """Or with the time that it was given."""
    run = runs.create_run(TRUE)
    other = RunDirectory(run.path)
    assert not other.wait_and_lock(0.05)
    late = threading.Timer(0.05, run.unlock)
    late.start()
    assert other.wait_and_lock(30)
    late.join()
    other.unlock()
    # The one that came too late gave back what it got.
    assert run.lock()


def test_the_lock_ends_with_a_killed_holder(runs: Home) -> None:
    """Nothing has to be cleaned up after SIGKILL."""
    run = runs.create_run(TRUE)
    run.unlock()
    program = (
        "import sys, pathlib; from agentctl_supervisor.store.run_directory import RunDirectory;"
        "run = RunDirectory(pathlib.Path(sys.argv[1]));"
        "print(run.lock(), flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(run.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert run.is_held()
        holder.kill()
    assert not run.is_held()


def test_a_fork_of_the_holder_does_not_keep_its_lock(runs: Home) -> None:
    """A program that embeds a supervisor may fork workers; they hold none of its runs."""
    run = runs.create_run(TRUE)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def stay() -> None:
        theirs.send(run.locked_by_us)
        theirs.recv()

    child = context.Process(target=stay)
    child.start()
    try:
        assert ours.recv() is False
        assert RunDirectory(run.path).is_held()
        run.unlock()
        assert not RunDirectory(run.path).is_held()
    finally:
        ours.send(None)
        child.join()


def test_a_program_that_the_holder_starts_does_not_keep_its_lock(runs: Home) -> None:
    """The descriptor is closed on exec."""
    run = runs.create_run(TRUE)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
        run.unlock()
        assert not RunDirectory(run.path).is_held()


# --- the files of a run -----------------------------------------------------


def test_a_report_is_written_once(runs: Home) -> None:
    """What was said about a run does not change."""
    run = runs.create_run(TRUE)
    assert run.read_report() is None
    first = report(run)
    assert run.write_report(first)
    assert not run.write_report(report(run))
    assert run.read_report() == first
    assert not [name for name in os.listdir(run.path) if name.startswith(".")]


def test_of_many_intents_one_is_kept(runs: Home) -> None:
    """Two stops are one."""
    run = runs.create_run(TRUE)
    assert run.read_intent() is None
    barrier = threading.Barrier(10)

    def leave(n: int) -> bool:
        barrier.wait()
        return run.write_intent(stop(f"intent {n}"))

    with ThreadPoolExecutor(10) as pool:
        left = list(pool.map(leave, range(10)))
    assert left.count(True) == 1
    assert run.read_intent() == stop(f"intent {left.index(True)}")


@pytest.mark.parametrize("name", ["spec", "report", "intent"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"argv": 3}', b"[" * 100_000, b'"\\ud800'],
    ids=["empty", "cut", "array", "binary", "null", "mistyped", "deep", "surrogate"],
)
def test_a_damaged_file_is_named_with_the_reason(runs: Home, name: str, content: bytes) -> None:
    """Never a traceback: which file, why, and what to do."""
    run = runs.create_run(TRUE)
    (run.path / name).write_bytes(content)
    read = {"spec": run.read_spec, "report": run.read_report, "intent": run.read_intent}[name]
    with pytest.raises(DamagedRunError, match=str(run.path / name)) as caught:
        read()
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("kind", ["directory", "link", "fifo", "huge"])
def test_a_spec_that_is_no_ordinary_file_is_a_named_error(runs: Home, kind: str) -> None:
    """Nothing hangs, follows a link, or is read without a bound."""
    run = runs.create_run(TRUE)
    path = run.path / "spec"
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(DamagedRunError, match=r"spec (is damaged|cannot be read)"):
        run.read_spec()


def test_a_missing_spec_is_a_named_error(runs: Home) -> None:
    """A run that lost its spec is listed, and says so when it is read."""
    (runs.root / BROKEN).touch()
    run = runs.create_run(TRUE)
    (run.path / "00000001.log").write_bytes(b"")
    (run.path / "spec").unlink()
    assert [found.id for found in runs.runs()] == [run.id]
    with pytest.raises(DamagedRunError, match="spec is missing"):
        run.read_spec()


def test_a_disk_that_takes_nothing_is_a_named_error(
    runs: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making a run, leaving an intent, writing a report: each says what failed."""
    run = runs.create_run(TRUE)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    for act in (lambda: runs.create_run(TRUE), lambda: run.write_intent(stop())):
        with pytest.raises(AgentctlError, match="No space left on device"):
            act()
    with pytest.raises(StateDirectoryError, match="report"):
        run.write_report(report(run))
    assert len(list(runs.runs_path.iterdir())) == 1
