"""Warns if variables of a run name files that exist but are not visible to the run."""

from collections.abc import Iterator
from typing import Final

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.terminal.console import labelled, plain
from agentctl_supervisor.cli.wording.phrases import cut_short

_SHOWN: Final = 200


def lines_about(spec: RunSpec, report: Report) -> Iterator[str]:
    """Yield a warning and a hint for each such variable; nothing if there is none."""
    for name in report.unseen_variables:
        value = cut_short((spec.env or {}).get(name, ""), _SHOWN)
        yield plain(f"agentctl: {name} names {value}, which the run does not see")
        yield labelled("hint", f'--ro "${name}" shows it to the run')
