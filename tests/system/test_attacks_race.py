"""A7: a run swaps a directory of its workspace for a symlink while others are being started.

Between the check of a path and the mount on it the path may lead elsewhere: the shape of
CVE-2026-87766, in which the host then got files that were only meant to be mounted on.
"""

import os
from pathlib import Path

import pytest
import trio

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Reason, Result, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS
from agentctl_testkit.capabilities import Capability, needs

ROUNDS = 25

pytestmark = needs(Capability.PID_NAMESPACE)


def _contents(directory: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_nlink)
    return found


async def test_swapping_a_protected_directory_makes_nothing_on_the_host(tmp_path: Path) -> None:
    """Each start works or is refused; the outside is never seen, mounted on or written to."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    workspace.mkdir()
    # What would be mounted on, were the link followed.
    (outside / "hooks").mkdir(parents=True)
    (outside / "secret").write_text("secret")
    before = _contents(outside)
    program = "test -e .git/secret && echo FOUND; echo x > .git/hooks/made && echo MADE; true"
    home = Home.open({"AGENTCTL_HOME": os.fspath(tmp_path / "home")}, create=True)
    common = {"sandbox": Sandbox.STRICT, "workspace": str(workspace), "cwd": str(workspace)}
    flipper = RunSpec(
        argv=("/usr/bin/python3", "-ESs", f"{AGENTS}/link_flipper.py", str(outside), "60"),
        **common,  # type: ignore[arg-type]
    )
    reports: list[Report] = []
    said = ""
    flipping = trio.Event()

    async def hear(_stream: str, data: bytes) -> None:
        if b"flipping" in data:
            flipping.set()

    async with Supervisor.open(home) as supervisor:
        attacker = await supervisor.start(flipper, on_output=hear)
        with trio.fail_after(30):
            await flipping.wait()
        for _ in range(ROUNDS):
            try:
                run = await supervisor.start(RunSpec(argv=("/bin/sh", "-c", program), **common))  # type: ignore[arg-type]
            except SpecError:
                continue
            reports.append(await run.wait())
            said += run.stdout.decode()
        await attacker.kill()

    assert "FOUND" not in said
    assert _contents(outside) == before
    assert {report.result for report in reports} <= {Result.SUCCEEDED, Result.REFUSED}
    refused = [report for report in reports if report.result is Result.REFUSED]
    assert {report.reason for report in refused} <= {Reason.SANDBOX}
    assert len(reports) > len(refused), "none was started: that proves little"


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD], ids=str)
async def test_a_forged_log_is_output(level: Sandbox, tmp_path: Path) -> None:
    """F3: bytes of a log segment and of a terminal's, written by a run, change no record."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    home = Home.open({"AGENTCTL_HOME": os.fspath(tmp_path / "home")}, create=True)
    async with Supervisor.open(home) as supervisor:
        first = await supervisor.start(RunSpec(argv=("/bin/true",), sandbox=Sandbox.BASIC))
        await first.wait(durable=True)
        (segment,) = (tmp_path / "home/runs" / first.id).glob("*.log")
        (workspace / "forged").write_bytes(segment.read_bytes() + b"\x1b]0;owned\x07\x1b[2J")
        run = await supervisor.start(
            RunSpec(
                argv=("/bin/sh", "-c", "cat forged; cat forged >&2; exit 3"),
                sandbox=level,
                workspace=str(workspace),
                cwd=str(workspace),
            )
        )
        report = await run.wait(durable=True)

    assert (report.result, report.exit_code) == (Result.FAILED, 3)
    assert report.log.damaged == ()
    assert report.id == run.id
    assert run.stdout == (workspace / "forged").read_bytes()
