"""What is said when a run's variables name files that exist and that it does not see."""

from collections.abc import Iterator
from typing import Final

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.terminal.console import labelled, plain
from agentctl_supervisor.cli.wording.phrases import cut_short

_SHOWN: Final = 200


def lines_about(spec: RunSpec, report: Report) -> Iterator[str]:
    """Which, and what shows them to the run; nothing for a run that sees all."""
    for name in report.unseen_variables:
        value = cut_short((spec.env or {}).get(name, ""), _SHOWN)
        yield plain(f"agentctl: {name} names {value}, which the run does not see")
        yield labelled("hint", f'--ro "${name}" shows it to the run')
