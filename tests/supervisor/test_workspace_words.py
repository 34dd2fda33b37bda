"""What a log says of a run's files, and how people are told."""

from datetime import UTC, datetime
from pathlib import Path

from agentctl_protocol.records import (
    Created,
    End,
    Exit,
    Record,
    RefusedRecord,
    RungRecord,
    Started,
    SupervisorRecord,
    WorkspaceRecord,
)
from agentctl_protocol.report import Report, Workspace
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Reason, Rung, Sandbox, State
from agentctl_supervisor.cli.wording import workspace_words
from agentctl_supervisor.filesystem.writable_roots import roots_of
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.workspace_history import without_names

CREATED = Created(
    supervisor=ProcessIdentity(1, 1), boot_id="b", workspace="/w", private_workspace=True
)
SPEC = RunSpec(argv=["x"], sandbox=Sandbox.STRICT)
KILLED = RungRecord(step=Rung.SIGKILL, processes=1, open_files=("a", "b"))


def folded(*bodies: SupervisorRecord) -> Workspace:
    fold = Fold("r-aaaaaaaa", SPEC)
    for number, body in enumerate(bodies, start=1):
        fold.apply(Record(number, number, By.SUPERVISOR, body))
    return fold.report().workspace


def test_a_living_run_has_its_workspace_in_its_report() -> None:
    """Where it is is known from the start, and nothing else yet."""
    assert folded(CREATED, Started()) == Workspace(path="/w", private=True)


def test_a_run_without_a_bound_has_none() -> None:
    """At basic, what it wrote may be anywhere."""
    plain = Created(supervisor=ProcessIdentity(1, 1), boot_id="b")

    assert folded(plain, Started(), Exit(code=0, left=3), End()) == Workspace()


def test_what_was_found_is_told_as_it_was_found() -> None:
    """The record is what the report says, once."""
    found = Workspace(path="/w", changed=("a",), open_at_kill=("a",), incomplete="much")
    later = Workspace(path="/x")

    told = folded(CREATED, Started(), KILLED, WorkspaceRecord(found), WorkspaceRecord(later), End())

    assert told == found


def test_a_run_whose_supervisor_died_says_that_nobody_looked() -> None:
    """What was open at a kill before that is known all the same."""
    told = folded(CREATED, Started(), KILLED, End())

    assert told.open_at_kill == ("a", "b")
    assert told.incomplete == "its supervisor died before it looked at the files"


def test_a_run_that_never_began_did_nothing() -> None:
    """Nothing is left unsaid about it."""
    told = folded(CREATED, RefusedRecord(reason=Reason.SANDBOX, detail="d"), End())

    assert told == Workspace(path="/w", private=True)


def test_what_could_not_be_asked_is_said() -> None:
    """Processes that the agent left behind are killed at once; a look may have been cut."""
    told = folded(
        CREATED,
        Started(),
        RungRecord(step=Rung.SIGKILL, open_unread="only 1 of 9"),
        Exit(code=0, left=2),
        WorkspaceRecord(Workspace(path="/w", incomplete="a mount")),
        End(),
    )

    assert told.incomplete == (
        "a mount; only 1 of 9; what 2 processes that it left behind had open is not known"
    )


def test_on_a_full_disk_few_names_are_kept() -> None:
    """The reserve of a log has room for numbers, and for what is to be warned of."""
    found = Workspace(
        path="/w",
        changed=("x" * 1000,) * 500,
        changed_left_out=7,
        special=("fifo " + "x" * 1000,) * 100,
        open_at_kill=("a",),
        exposed=("b",),
    )

    short = without_names(found)

    assert short == Workspace(
        path="/w",
        changed_left_out=507,
        incomplete="the disk is full",
        open_at_kill=("a",),
        exposed=("b",),
    )


# --- for people ---------------------------------------------------------------


def report(workspace: Workspace) -> Report:
    return Report(
        id="r-aaaaaaaa", state=State.FINISHED, created_at=datetime.now(UTC), workspace=workspace
    )


def test_names_do_nothing_to_a_terminal() -> None:
    """Control characters, overrides of direction and separators are written out."""
    hostile = ("a\nb", "\x1b[31mred", "\u202egnp.exe", "a, b", "back\\slash", "plain.py")

    told = dict(workspace_words.facts(report(Workspace(path="/w", changed=hostile))))

    assert told["changed"] == (
        "6 files: 'a\\nb', '\\x1b[31mred', '\\u202egnp.exe', 'a, b', 'back\\\\slash' and 1 more"
    )


def test_a_page_tells_what_matters_first() -> None:
    """Where, what may be half written, what to look at, then the rest."""
    workspace = Workspace(
        path="/w",
        private=True,
        changed=("./", "a", "d/", "d/b"),
        changed_left_out=3,
        incomplete="a mount",
        special=("fifo p q",),
        open_at_kill=("a",),
        exposed=(".git/hooks", "sub/.git/config"),
    )

    assert list(workspace_words.facts(report(workspace))) == [
        ("workspace", "/w (its own)"),
        ("unfinished", "may be half written: a"),
        (
            "exposed",
            (
                ".git/hooks (git executes them), sub/.git/config "
                "(git executes what it names: pagers, filters, monitors): look before you go on"
            ),
        ),
        ("changed", "5 files: a, d/b and 3 more"),
        ("special", "fifo 'p q'"),
        ("not seen", "a mount"),
    ]


def test_a_deletion_alone_is_told_by_its_directory() -> None:
    """No file changed, but something did."""
    told = dict(workspace_words.facts(report(Workspace(path="/w", changed=("./", "d/")))))

    assert told["changed"] == "d/"


def test_the_end_of_a_run_hints_at_what_is_not_ordinary() -> None:
    """Nothing for a run that only changed files; a line each for what to look at."""
    calm = Workspace(path="/w", changed=("a",))
    wild = Workspace(path="/w", exposed=(".bashrc",), open_at_kill=("a", "b"))

    assert list(workspace_words.hints(report(calm))) == []
    assert list(workspace_words.hints(report(wild))) == [
        "it made or changed .bashrc (shells execute it): look before you go on",
        "these were open for writing when it was killed, and may be half written: a, b",
    ]


# --- paths ----------------------------------------------------------------------


def test_the_roots_are_the_workspace_and_what_is_outside_of_it(tmp_path: Path) -> None:
    """``--rw`` beneath the workspace adds nothing; a relative one would mean our own directory."""
    work = tmp_path / "work"
    spec = RunSpec(argv=["x"], rw=(f"{work}/in", "../more", f"{tmp_path}/more", "/other"))

    assert roots_of(str(work), spec) == (
        str(work).encode(),
        str(tmp_path / "more").encode(),
        b"/other",
    )
    assert roots_of("", spec) == ()
