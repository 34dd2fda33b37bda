"""The supervisor of agentctl: starts runs, watches them, and always ends them.

Each name is loaded when it is first used.  `Supervisor` and `Run` need trio, but
``agentctl_supervisor.client`` and the commands that only look at runs or stop them do not.
Also, a command must set up its handling of signals before it loads other modules.
"""

TYPE_CHECKING = False  # not imported: `typing` takes longer to load than all of this module
if TYPE_CHECKING:
    from typing import Any

    from agentctl_protocol import Reason, Report, Result, Rung, RunSpec, Sandbox, SpecError, State
    from agentctl_supervisor.run.run import Run
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

_OURS = {"Run": "agentctl_supervisor.run.run", "Supervisor": "agentctl_supervisor.supervisor"}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_OURS.get(name, "agentctl_protocol")), name)
