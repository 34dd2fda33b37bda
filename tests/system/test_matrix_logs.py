"""The check of all logs at the end of a session would find what it looks for."""

from pathlib import Path

import msgspec
import pytest

from agentctl_protocol.records import End, Exit, Stop, SupervisorRecord, VerdictRecord
from agentctl_protocol.report import Actor
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_testkit.log_check import BROKEN, faults, logs_below

STOP = Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 0.0, 0.0)
GRANT = VerdictRecord(call="1", kind="tool", name="t", verdict="granted")


@pytest.fixture(autouse=True)
def audited_logs() -> None:
    """In place of the check after each test: these logs are to be found broken."""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A place that the session's own check passes by."""
    (tmp_path / BROKEN).touch()
    return tmp_path / "base"


def _write(base: Path, *bodies: SupervisorRecord) -> RunDirectory:
    home = Home.open({"AGENTCTL_HOME": str(base / "home")}, create=True)
    run = home.create_run(RunSpec(argv=("/bin/true",)))
    writer = LogWriter(run.path, run.id)
    for body in bodies:
        writer.append(body)
    writer.close()
    run.unlock()
    return run


def _report(run: RunDirectory, *, detail: str = "") -> None:
    fold = Fold(run.id, run.read_spec(), run.created_at)
    reader = LogReader(run.path)
    for record in reader:
        fold.apply(record)
    report = fold.report(log_bytes=reader.bytes)
    if detail:
        report = msgspec.structs.replace(report, detail=detail)
    run.write_report(report)


def test_a_good_log_has_no_fault(base: Path) -> None:
    """It is found, and nothing is said about it."""
    run = _write(base, STOP, Exit(code=0), End())
    _report(run)
    assert list(logs_below(base)) == [run.path]
    assert faults(run.path) == []


@pytest.mark.parametrize(
    ("bodies", "said"),
    [
        ((STOP, GRANT), "granted after the stop"),
        ((STOP, STOP), "a second stop"),
        ((End(), Exit(code=0)), "exit after the end"),
        ((End(), End()), "end after the end"),
    ],
    ids=["grant", "two-stops", "late-exit", "two-ends"],
)
def test_a_broken_promise_is_found(
    base: Path, bodies: tuple[SupervisorRecord, ...], said: str
) -> None:
    """In words that name it."""
    run = _write(base, *bodies)
    assert any(said in fault for fault in faults(run.path)), faults(run.path)


def test_a_missing_record_is_found(base: Path) -> None:
    """The numbers have a gap, and a reader says that something is damaged."""
    run = _write(base, STOP, Exit(code=0), End())
    path = run.path / "00000001.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    assert faults(run.path)


def test_a_report_that_is_not_the_logs_is_found(base: Path) -> None:
    """The field is named."""
    run = _write(base, STOP, Exit(code=0), End())
    _report(run, detail="it went very well")
    (fault,) = faults(run.path)
    assert fault.startswith("its report says detail = ")


def test_what_is_broken_on_purpose_is_passed_by(base: Path) -> None:
    """Tests of damage say so."""
    run = _write(base, STOP, STOP)
    assert faults(run.path)
    assert list(logs_below(base.parent)) == []
