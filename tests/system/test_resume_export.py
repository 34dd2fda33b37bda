"""A run that goes on where another ended, and a run as one file."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from agentctl_protocol.messages import Start
from agentctl_protocol.report import Call, Report
from agentctl_protocol.vocabulary import Result, State
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.resuming import MAX_HISTORY_BYTES, told_of
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome

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
