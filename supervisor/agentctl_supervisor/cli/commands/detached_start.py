"""Implements ``-d``: starts a run and leaves it to a supervisor of its own."""

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.terminal import console
from agentctl_supervisor.cli.wording import fresh_workspace, unseen_variables
from agentctl_supervisor.cli.wording.phrases import called, outcome
from agentctl_supervisor.detached.start import start_detached


def run(spec: RunSpec, *, quiet: bool, as_json: bool) -> int:
    """Start *spec*, print the run's id when its agent is running, and return the exit code."""
    report = start_detached(spec)
    if as_json:
        console.out_json(report)
    if report.started_at is None:
        console.say(f"error: {console.plain(_why(report))}")
        console.say(f"hint: agentctl show {called(report)}")
        return report.process_exit_code
    if not quiet:
        for line in fresh_workspace.lines_about(spec, report):
            console.say(line)
        for line in unseen_variables.lines_about(spec, report):
            console.say(line)
    if not as_json:
        console.out(report.id)
    return 0


def _why(report: Report) -> str:
    return report.detail or f"the run did not start: {outcome(report)}"
