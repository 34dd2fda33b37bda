"""What comes after a run, while others wait for its end: in order, within a time, once."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from agentctl_protocol.records import (
    MAX_BODY,
    Created,
    End,
    Exit,
    RungRecord,
    Started,
    Stop,
    WorkspaceRecord,
)
from agentctl_protocol.report import Workspace
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Rung, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.errors import LogFullError
from agentctl_supervisor.run import workspace_after_run
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.run.workspace_after_run import Aftermath
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.workspace.survey import Survey
from agentctl_testkit import let_everybody_in
from agentctl_testkit.capabilities import Capability, needs


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


@pytest.fixture
def log(state: Home, tmp_path: Path) -> Iterator[RunLog]:
    (tmp_path / "work").mkdir()
    spec = RunSpec(argv=["x"], sandbox=Sandbox.STRICT)
    log = RunLog(state.create_run(spec), spec)
    log.append(
        Created(supervisor=ProcessIdentity(1, 1), boot_id="b", workspace=str(tmp_path / "work"))
    )
    yield log
    log.close()


async def test_a_file_system_that_does_not_answer_holds_up_no_end(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look is given up, the report says why, and the next run's is not in its way."""
    answer = threading.Event()
    monkeypatch.setattr(workspace_after_run, "_HUNG_S", 0.05)
    monkeypatch.setattr(workspace_after_run, "LOOK_S", 0.0)
    look = Survey.look

    def hang(*_: object) -> Workspace:
        answer.wait()
        return Workspace()

    monkeypatch.setattr(Survey, "look", hang)
    after = Aftermath(log, tmp_path)
    log.append(Started())
    log.append(RungRecord(step=Rung.SIGKILL, open_files=("half",)))
    try:
        for _ in range(2 * workspace_after_run.AT_ONCE):
            await after.write_down()
    finally:
        answer.set()
    monkeypatch.setattr(Survey, "look", look)
    monkeypatch.setattr(workspace_after_run, "_HUNG_S", 60.0)
    assert (await after._look(())).incomplete == ""

    log.append(End())
    assert log.report().workspace == Workspace(
        path=str(tmp_path / "work"),
        incomplete="its file system did not answer",
        open_at_kill=("half",),
    )


@pytest.mark.parametrize("error", [OSError(5, "I/O error"), RuntimeError("can't start new thread")])
async def test_a_look_that_fails_ends_no_run_without_an_end(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The report says that it failed, and everything else as ever."""

    def fail(*_: object) -> Workspace:
        raise error

    monkeypatch.setattr(Survey, "look", fail)
    log.append(Started())

    await Aftermath(log, tmp_path).write_down()

    log.append(End())
    assert log.report().workspace.incomplete.startswith("looking failed: ")


async def test_nothing_is_looked_for_where_nothing_ran(log: RunLog, tmp_path: Path) -> None:
    """A run that was refused has changed nothing, and costs no thread."""
    await Aftermath(log, tmp_path).write_down()

    log.append(End())
    assert log.report().workspace == Workspace(path=str(tmp_path / "work"))


async def test_on_a_full_disk_the_end_still_fits(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of names that finds no room is left out; what follows it is written."""
    for number in range(900):
        (tmp_path / "work" / f"{number:0100}").write_text("")
    after = Aftermath(log, tmp_path)
    for number in range(900):
        (tmp_path / "work" / f"{number:0100}").chmod(0o600)
    (tmp_path / "work" / "new").write_text("")
    room = 16 << 10
    append = LogWriter.append

    def limited(self: LogWriter, body: bytes, *arguments: int) -> object:
        nonlocal room
        if len(body) > room:
            raise LogFullError("no room")
        room -= len(body)
        return append(self, body, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LogWriter, "append", limited)
    log.append(Started())

    await after.write_down()
    log.decide(End())

    told = log.report()
    assert told.finished
    assert told.workspace.changed == ()
    assert told.workspace.changed_left_out == 902 or "no time" in told.workspace.incomplete
    assert told.workspace.incomplete.endswith("the disk is full")
    written = [type(record.body) for record in LogReader(log._directory.path)]
    assert written == [Created, Started, WorkspaceRecord, End]


@needs(Capability.PID_NAMESPACE)
async def test_a_stop_during_the_look_changes_nothing(
    state: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own end stands in the log before anybody looks at its files."""
    (tmp_path / "work").mkdir()
    let_everybody_in(tmp_path / "work")
    looking, go_on = trio.Event(), trio.Event()
    write_down = Aftermath.write_down

    async def slowly(self: Aftermath) -> None:
        looking.set()
        await go_on.wait()
        await write_down(self)

    monkeypatch.setattr(Aftermath, "write_down", slowly)
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(
            RunSpec(
                argv=["sh", "-c", "echo x > made"],
                sandbox=Sandbox.STRICT,
                cwd=str(tmp_path / "work"),
            )
        )
        await looking.wait()
        assert not run.report.finished
        run.request_stop()
        run.request_stop(kill=True)
        go_on.set()
        report = await run.wait()
    assert report.result is Result.SUCCEEDED, report.detail
    assert report.workspace.changed == ("./", "made")
    bodies = [record.body for record in LogReader(state.runs_path / run.id)]
    assert not any(isinstance(body, Stop) for body in bodies)
    order = [type(body) for body in bodies if isinstance(body, Exit | WorkspaceRecord | End)]
    assert order == [Exit, WorkspaceRecord, End]


async def test_at_basic_there_is_nothing_to_look_at(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bound, no look, no record; the end waits for nothing."""
    monkeypatch.setattr(Survey, "look", lambda *_: pytest.fail("looked"))
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(RunSpec(argv=["true"], sandbox=Sandbox.BASIC))
        report = await run.wait()
    assert report.result is Result.SUCCEEDED
    assert report.workspace == Workspace()


@needs(Capability.PID_NAMESPACE)
async def test_what_else_it_may_write_to_is_told_by_whole_paths(
    state: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory and a file of ``--rw``, given relative to a directory that is left since."""
    for name in ("work", "more"):
        (tmp_path / name).mkdir()
    for name in ("file", "same"):
        (tmp_path / name).write_text("")
    let_everybody_in(tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(
            RunSpec(
                argv=["sh", "-c", "echo x > ../more/made; echo x > ../file"],
                sandbox=Sandbox.STRICT,
                rw=("../more", "../file", "../same"),
            )
        )
        os.chdir("/")
        report = await run.wait()
    assert report.result is Result.SUCCEEDED, report.detail
    assert report.workspace.changed == (
        *(f"{tmp_path}/file", f"{tmp_path}/more/", f"{tmp_path}/more/made"),
    )
    assert report.workspace.incomplete == ""


def test_the_most_that_can_be_found_fits_into_a_record(tmp_path: Path) -> None:
    """Names of bytes that have to be written out, in every list, beneath every path."""
    long = b"\xff" * 200
    roots = [tmp_path / "work", *(tmp_path / f"more{number}" for number in range(4))]
    for root in roots:
        root.mkdir()
    spec = RunSpec(argv=["x"], sandbox=Sandbox.STRICT, rw=tuple(map(str, roots[1:])))
    created = Created(ProcessIdentity(1, 1), "b", workspace=str(roots[0]))
    survey = Survey(created, spec)
    for root in roots:
        for number in range(800):
            os.mkfifo(os.fsencode(root) + b"/%d" % number + long)
    (tmp_path / "work/.git/hooks").mkdir(parents=True)
    for number in range(200):
        os.makedirs(os.fsencode(roots[0]) + b"/%d" % number + long + b"d/.git/hooks")

    found = survey.look(seconds=60.0)

    assert len(found.changed) + found.changed_left_out > 4000
    assert min(len(found.changed), len(found.special), len(found.exposed)) > 10
    assert found.exposed[0] == ".git/hooks"
    assert len(msgspec.msgpack.encode(WorkspaceRecord(found))) < MAX_BODY
