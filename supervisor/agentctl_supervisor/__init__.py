"""The supervisor of agentctl: starts runs, watches them, and always ends them.

`Supervisor` and `Run` need trio and are loaded when they are first used, so
that ``agentctl_supervisor.client`` and the commands which only look or stop
stay light.
"""

from typing import TYPE_CHECKING, Any

from agentctl_protocol import Reason, Report, Result, Rung, RunSpec, Sandbox, SpecError, State

if TYPE_CHECKING:
    from agentctl_supervisor.run import Run
    from agentctl_supervisor.supervisor import Supervisor

__all__ = [
    "Reason",
    "Report",
    "Result",
    "Run",
    "RunSpec",
    "Rung",
    "Sandbox",
    "SpecError",
    "State",
    "Supervisor",
]


def __getattr__(name: str) -> Any:
    if name == "Supervisor":
        from agentctl_supervisor.supervisor import Supervisor

        return Supervisor
    if name == "Run":
        from agentctl_supervisor.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
