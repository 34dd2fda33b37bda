"""Explains why a run gets a fresh workspace instead of the directory that it was started in."""

import os
from collections.abc import Iterator

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.terminal.console import labelled, plain
from agentctl_supervisor.policy.decision import usual_workspace
from agentctl_supervisor.run.launch import working_directory


def lines_about(spec: RunSpec, report: Report) -> Iterator[str]:
    """Yield why, and the path of the fresh workspace; nothing if the run has no fresh one."""
    if not report.workspace.private:
        return
    cwd = working_directory(spec)
    usual = usual_workspace(cwd, os.environ)
    yield plain(f"agentctl: {cwd} is {usual.why}; the run has a fresh workspace:")
    yield f"  {plain(report.workspace.path)}"
    if usual.hint:
        yield labelled("hint", usual.hint)
