"""A run that goes on where another ended, and a run as one file."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import trio

from agentctl_protocol.messages import Start
from agentctl_protocol.report import Call, Report
from agentctl_protocol.vocabulary import Result, State
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.errors import NoSuchRunError
from agentctl_supervisor.run.resuming import MAX_HISTORY_BYTES, CannotResumeError, told_of
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome, new_marker
from agentctl_testkit.cli import Foregrounds

GOES_ON = f"{AGENTS}/goes_on.py:main"


async def test_a_resumed_run_has_the_checkpoint_and_the_unsure_calls(tmp_path: Path) -> None:
    """It does only the rest, and is told which call may have had its effect."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    spec = RunSpec(target=GOES_ON, input=[4, 2], grace_s=0.2, term_grace_s=0.2)
    async with Supervisor.open(home) as supervisor:
        first = await supervisor.start(spec)
        async for record in first.events():
            if "so far" in repr(record.body):
                break
        stopped = await first.kill()
        assert stopped.result is Result.STOPPED
        assert [call.outcome for call in stopped.calls] == ["ok", "ok", "interrupted"]
        second = await supervisor.start(RunSpec(target=GOES_ON, input=[4, None], resumes=first.id))
        report = await second.wait()
    assert report.value == {"steps": [0, 1, 2, 3], "unsure": ["work 2"]}
    assert report.resumes == first.id


async def test_what_was_saved_stays_until_more_is_saved(tmp_path: Path) -> None:
    """A successor that ends before its first checkpoint, or never begins, hands on all it had."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    before: str | None = None
    async with Supervisor.open(home) as supervisor:
        for hang in (2, None):
            spec = RunSpec(target=GOES_ON, input=[4, hang], resumes=before, grace_s=0.2)
            run = await supervisor.start(spec)
            if hang is None:
                run.request_stop(kill=True)
            else:
                async for record in run.events():
                    if "so far" in repr(record.body):
                        break
            await run.kill()
            before = run.id
        gone = RunSpec(argv=("/no/such/program",), resumes=before)
        refused = await (await supervisor.start(gone)).wait()
        assert refused.result is Result.REFUSED
        spec = RunSpec(target=GOES_ON, input=[4, None], resumes=refused.id)
        report = await (await supervisor.start(spec)).wait()
    assert report.value == {"steps": [0, 1, 2, 3], "unsure": ["work 2"]}


def test_a_resume_that_did_not_come_about_is_resumed_by_its_name(home: AgentctlHome) -> None:
    """The name is the newest run's, which has done nothing: what counts is the one before it."""
    lost_run(home)
    agent = home.root.parent / "fails.py"
    away = agent.rename(agent.with_suffix(".away"))
    assert home.run("resume", "-q", "first").code == 127
    away.rename(agent)
    again = home.run("resume", "-q", "first")
    assert (again.code, json.loads(again.out)) == (0, [{"page": 7}, "failed", "a"])


def test_calls_of_earlier_runs_are_told_apart() -> None:
    """Each run counts its own from one."""
    calls = (Call("c1", "tool", "pay", "interrupted"),)
    reports = [
        Report(id=f"r-{letter * 8}", state=State.FINISHED, created_at=None, calls=calls)  # type: ignore[arg-type]
        for letter in "cba"
    ]
    told = told_of(Start(run="r-dddddddd"), reports[0], reports[1:]).resumed
    assert told is not None
    assert [call.id for call in told.calls] == ["r-aaaaaaaa/c1", "r-bbbbbbbb/c1", "c1"]


def lost_run(home: AgentctlHome, name: str = "first") -> None:
    """A run that failed after some steps."""
    agent = home.root.parent / "fails.py"
    agent.write_text(
        "from agentctl_child import run\n\n\n"
        "def main():\n"
        "    if run.resumed:\n"
        "        return [run.resumed.checkpoint, run.resumed.result, run.input]\n"
        "    run.checkpoint({'page': 7})\n"
        "    raise ValueError('no')\n"
    )
    ended = home.run("run", "-q", "--name", name, "--input", '"a"', f"{agent}:main")
    assert ended.code == 1, ended.err


def test_the_command_resumes_with_the_old_settings(home: AgentctlHome) -> None:
    """By name; the input stays the same unless another one is given."""
    lost_run(home)
    again = home.run("resume", "-q", "first")
    assert (again.code, json.loads(again.out)) == (0, [{"page": 7}, "failed", "a"])
    lost_run(home, "other")
    other = home.run("resume", "-q", "--input", '"b"', "other")
    assert json.loads(other.out)[2] == "b"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("true",), "has succeeded"),
        (("/no/such/program",), "never started"),
    ],
)
def test_what_cannot_be_resumed_is_said_in_one_line(
    home: AgentctlHome, command: tuple[str, ...], says: str
) -> None:
    """With the command that fits instead."""
    home.run("run", "-q", "--name", "x", "--", *command)
    refused = home.run("resume", "x")
    assert refused.code == 1
    error, hint = refused.err.splitlines()
    assert says in error
    assert hint.startswith("hint: agentctl rerun x")


def test_a_long_history_is_cut_at_its_old_end() -> None:
    """What the successor is told fits into a frame; how much is missing is said."""
    many = tuple(
        Call(str(n), "tool", "t", "ok", args="a" * 1000, result="r" * 1000) for n in range(1000)
    )
    report = Report(id="r-aaaaaaaa", state=State.FINISHED, created_at=None, calls=many)  # type: ignore[arg-type]
    told = told_of(Start(run="r-bbbbbbbb"), report).resumed
    assert told is not None
    assert told.calls[-1].id == "999"
    assert told.calls_left_out == 1000 - len(told.calls)
    assert sum(len(bytes(call.args)) * 2 for call in told.calls) > MAX_HISTORY_BYTES / 2
    assert sum(len(bytes(call.args)) * 2 for call in told.calls) < MAX_HISTORY_BYTES


# --- export ---------------------------------------------------------------


@pytest.fixture
def exported(home: AgentctlHome, tmp_path: Path) -> RunSpec:
    """A run, called ``x``, that names good and bad artifacts."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "good.txt").write_text("good")
    (work / "link").symlink_to("/etc/passwd")
    os.mkfifo(work / "fifo")
    (work / "suid").write_text("suid")
    (work / "suid").chmod(0o4755)
    agent = work / "agent.py"
    names = ["good.txt", "link", "fifo", "suid", "../outside", "/etc/passwd", "gone"]
    agent.write_text(
        "from agentctl_child import run\n\n\n"
        f"def main():\n    for name in {names!r}:\n        run.artifact(name)\n"
    )
    (tmp_path / "outside").write_text("outside")
    ended = home.run("run", "-q", "--name", "x", f"{agent}:main", cwd=work)
    assert ended.code == 0, ended.err
    return RunSpec(argv=("true",))


def test_a_bundle_holds_the_run_and_only_plain_artifacts(
    home: AgentctlHome, exported: RunSpec, tmp_path: Path
) -> None:
    """Links, FIFOs, set-uid files and what lies outside are left out, each with its reason."""
    bundle = tmp_path / "x.tar"
    done = home.run("export", "-f", str(bundle), "x")
    assert done.code == 0, done.err
    with tarfile.open(bundle) as tar:
        members = {member.name.partition("/")[2]: member for member in tar.getmembers()}
        (manifest_name,) = [name for name in tar.getnames() if name.endswith("MANIFEST.json")]
        manifest_file = tar.extractfile(manifest_name)
        assert manifest_file is not None
        manifest = json.load(manifest_file)
    assert set(members) == {
        "spec.json",
        "report.json",
        "log/00000001.log",
        "artifacts/good.txt",
        "MANIFEST.json",
    }
    assert all(member.isreg() and member.mode == 0o644 for member in members.values())
    left_out = {line.partition(":")[0] for line in manifest["left_out"]}
    assert left_out == {"link", "fifo", "suid", "../outside", "/etc/passwd", "gone"}
    assert len(done.err.splitlines()) == 7


def test_a_bundle_goes_through_a_pipe(home: AgentctlHome, exported: RunSpec) -> None:
    """``-f -`` writes a stream that tar can read."""
    done = home.run("export", "-f", "-", "x")
    with tarfile.open(fileobj=io.BytesIO(done.stdout), mode="r|") as tar:
        assert any(member.name.endswith("/report.json") for member in tar)


def test_an_export_never_overwrites(home: AgentctlHome, exported: RunSpec, tmp_path: Path) -> None:
    """A file that is there stays as it is."""
    there = tmp_path / "there.tar"
    there.write_text("mine")
    refused = home.run("export", "-f", str(there), "x")
    assert refused.code == 2
    assert there.read_text() == "mine"


# --- resume under what goes wrong -------------------------------------------

BIG = """
from agentctl_child import run

def main():
    if run.resumed is not None:
        told = run.resumed
        return [len(told.checkpoint), len(told.calls), told.calls_left_out, len(told.text)]
    for number in range(run.input[1]):
        with run.tool_call("t", "a" * 5000) as call:
            call.result = "r" * 5000
    run.emit_text("t" * 200_000)
    run.checkpoint("x" * run.input[0])
    raise ValueError("no")
"""
MOST = (1 << 20) - (1 << 14) - 5
"""Characters of the longest text that the SDK takes for a checkpoint."""


@pytest.fixture
def big(tmp_path: Path) -> str:
    path = tmp_path / "big.py"
    path.write_text(BIG)
    return f"{path}:main"


@pytest.mark.parametrize(
    ("checkpoint", "calls"), [(MOST, 0), (MOST, 200), (500_000, 200), (10, 200)]
)
async def test_the_longest_checkpoint_arrives_and_the_rest_as_far_as_there_is_room(
    home: AgentctlHome, big: str, checkpoint: int, calls: int
) -> None:
    """All is told in one frame: the checkpoint in full, then the newest calls, then the text."""
    store = Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)
    async with Supervisor.open(store) as supervisor:
        first = await supervisor.start(RunSpec(target=big, input=[checkpoint, calls]))
        assert (await first.wait()).result is Result.FAILED
        second = await supervisor.start(RunSpec(target=big, resumes=first.id))
        with trio.fail_after(20):
            report = await second.wait()
    length, told, left_out, text = report.value
    assert length == checkpoint
    assert told + left_out == calls
    assert (told > 1) == (calls > 0 and checkpoint < MOST)  # one or none has room beside MOST
    assert text == 100_000 or checkpoint == MOST


def test_a_checkpoint_and_an_input_that_are_too_long_together_are_said(
    home: AgentctlHome, big: str, tmp_path: Path
) -> None:
    """In one line, and no run is made that would wait for ever."""
    home.run("run", "-q", "--name", "first", "--input", f"[{MOST}, 0]", big)
    (tmp_path / "input").write_text('"' + "i" * 100_000 + '"')
    refused = home.run("resume", "--input", f"@{tmp_path / 'input'}", "first")
    assert refused.code == 1
    error, hint = refused.err.splitlines()
    assert "too long for one message" in error
    assert hint.startswith("hint: ")
    assert len(home.run("ps", "-a", "-o", "json").json()) == 1


async def test_a_run_that_lives_cannot_be_gone_on_with(home: AgentctlHome) -> None:
    """Its calls may yet end, so nobody may be told that they were cut off."""
    store = Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)
    async with Supervisor.open(store) as supervisor:
        first = await supervisor.start(RunSpec(argv=("sleep", "60")))
        with pytest.raises(CannotResumeError, match="is not over"):
            await supervisor.start(RunSpec(target=GOES_ON, resumes=first.id))
        with pytest.raises(NoSuchRunError):
            await supervisor.start(RunSpec(target=GOES_ON, resumes="r-aaaaaaaa"))
        assert [run.id for run in supervisor.live_runs()] == [first.id]


def test_a_lost_run_is_gone_on_with_and_its_successor_too(home: AgentctlHome) -> None:
    """A chain: each has the last checkpoint of the one before, and names that one."""
    with Foregrounds(home, new_marker()) as outside:
        process = outside.start("--name", "one", "--input", "[3, 1]", GOES_ON)
        for _ in range(400):
            if "so far" in home.run("events", "one").out:
                break
        process.kill()
        process.wait()
    ids = [home.run("show", "one", "-o", "json").json()["id"]]
    second = home.run("resume", "--name", "two", "--input", "[2, null]", "one")
    assert json.loads(second.out) == {"steps": [0, 1], "unsure": ["work 1"]}
    done = home.run("show", "two", "-o", "json").json()
    assert done["resumes"] == ids[0]
    refused = home.run("resume", "two")
    assert (refused.code, "has succeeded" in refused.err) == (1, True)

    agent = home.root.parent / "counts.py"
    agent.write_text(
        "from agentctl_child import run\n\n\n"
        "def main():\n"
        "    seen = run.resumed.checkpoint if run.resumed else []\n"
        "    run.checkpoint([*seen, run.id])\n"
        "    raise ValueError('not yet')\n"
    )
    home.run("run", "-q", "--name", "c0", f"{agent}:main")
    for number in range(3):
        home.run("resume", "-q", "--name", f"c{number + 1}", f"c{number}")
    chain = [home.run("show", f"c{number}", "-o", "json").json() for number in range(4)]
    assert chain[3]["checkpoint"] == [one["id"] for one in chain]
    assert [one["resumes"] for one in chain] == [None, *(one["id"] for one in chain[:3])]


# --- export under what goes wrong -----------------------------------------------


def test_hostile_names_stay_below_their_directory_and_each_is_there_once(
    home: AgentctlHome, tmp_path: Path
) -> None:
    """Control characters, ``..``, absolute and very long ones, and two that would be the same."""
    work = tmp_path / "work"
    (work / "a").mkdir(parents=True)
    (work / "a" / "x").write_text("x")
    (work / "\x1b]0;evil\x07").write_text("evil")
    (work / "new\nline").write_text("line")
    (work / "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe").write_text("rtl")
    long = "/".join(["d" * 200] * 15)
    os.makedirs(work / os.path.dirname(long))
    (work / long).write_text("long")
    names = [
        *("a/x", "a//x", "./a/x", "a/../a/x", str(work / "a" / "x")),
        *("\x1b]0;evil\x07", "new\nline", "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe", long),
        *("../../etc/passwd", "..", ".", "/", "a", "y" * 4000, "a/x/"),
    ]
    agent = work / "agent.py"
    agent.write_text(
        "from agentctl_child import run\n\n\n"
        f"def main():\n    for name in {names!r}:\n        run.artifact(name)\n"
    )
    ended = home.run("run", "-q", "--name", "x", f"{agent}:main", cwd=work)
    assert ended.code == 0, ended.err
    done = home.run("export", "-f", str(tmp_path / "x.tar"), "x")
    assert done.code == 0, done.err
    assert "\x1b" not in done.err
    with tarfile.open(tmp_path / "x.tar") as tar:
        members = tar.getnames()
        assert len(set(members)) == len(members)
        assert not [name for name in members if name.startswith("/") or ".." in name.split("/")]
        _extract(tar, tmp_path / "out")
    (root,) = (tmp_path / "out").iterdir()
    manifest = json.loads((root / "MANIFEST.json").read_text())
    assert all((root / name).is_file() for name in manifest["files"])
    assert (root / "artifacts" / long).read_text() == "long"
    assert (root / "artifacts" / "new\\nline").read_text() == "line"
    told = dict(line.split(": ", 1) for line in manifest["left_out"])
    for same in ("a//x", "./a/x", "a/../a/x"):
        assert told[same] == "it would be artifacts/a/x as well"
    for outside in ("../../etc/passwd", "..", "/", "y" * 4000):
        assert outside in told
    assert len(done.err.splitlines()) == len(told) + 1


def test_a_run_that_lives_is_exported_as_far_as_it_is(home: AgentctlHome, tmp_path: Path) -> None:
    """What the bundle's log holds can be read, while the run writes on."""
    from agentctl_supervisor.store.log_reader import LogReader

    with Foregrounds(home, new_marker()) as outside:
        process = outside.up("echo up; while :; do echo more; done", "--name", "x")
        done = home.run("export", "-f", str(tmp_path / "x.tar"), "x")
        assert done.code == 0, done.err
        assert process.poll() is None
    with tarfile.open(tmp_path / "x.tar") as tar:
        _extract(tar, tmp_path / "out")
    (root,) = (tmp_path / "out").iterdir()
    reader = LogReader(root / "log", root.name)
    records = list(reader)
    assert len(records) > 4
    assert reader.damaged == []
    assert json.loads((root / "report.json").read_text())["state"] == "running"


def test_an_export_that_finds_no_room_leaves_nothing_behind(home: AgentctlHome) -> None:
    """One line, and the exit code of a failure that is ours."""
    home.run("run", "-q", "--name", "x", "--", "true")
    with open("/dev/full", "wb") as full:
        process = home.start("export", "-f", "-", "x", stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 125
    assert err.decode().startswith("error: ")
    assert "Traceback" not in err.decode()


def _extract(tar: tarfile.TarFile, directory: Path) -> None:
    """As a careful person does, where this Python can: Debian 12's 3.11.2 has no filters."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(directory, filter="data")
    else:
        tar.extractall(directory)  # noqa: S202 - our own bundle
