"""What is said when a run gets a fresh workspace, and not the directory that it was started in."""

import os
from collections.abc import Iterator

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.terminal.console import labelled, plain
from agentctl_supervisor.policy.decision import usual_workspace
from agentctl_supervisor.run.launch import working_directory


def lines_about(spec: RunSpec, report: Report) -> Iterator[str]:
    """Why, and where it is; nothing for a run that has the directory itself."""
    if not report.workspace.private:
        return
    cwd = working_directory(spec)
    usual = usual_workspace(cwd, os.environ)
    yield plain(f"agentctl: {cwd} is {usual.why}; the run has a fresh workspace:")
    yield f"  {plain(report.workspace.path)}"
    if usual.hint:
        yield labelled("hint", usual.hint)
