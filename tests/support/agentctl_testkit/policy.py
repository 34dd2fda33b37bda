"""What the policy makes of a run in a workspace."""

import os
from pathlib import Path
from typing import Any, Final

from agentctl_protocol.spawning import Bind
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy.decision import Ground, Policy, decide
from agentctl_supervisor.policy.path_aliases import OtherNames

ALONE: Final = OtherNames(())
"""Of a machine where nothing is mounted in two places."""


def policy_in(
    workspace: Path,
    /,
    *argv: str,
    environ: dict[str, str] | None = None,
    **more: Any,
) -> Policy:
    """That of a run of *argv* at strict, started in *workspace*; *more* of its spec."""
    given: dict[str, Any] = {"argv": argv or ("/bin/true",)}
    spec = RunSpec(**{**given, "sandbox": Sandbox.STRICT, "net": Network.NONE, **more})
    known = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **(environ or {})}
    return decide(spec, Ground(known, str(workspace), "/state/r"))


def read_only_in(policy: Policy, workspace: Path) -> set[str]:
    """What is read-only beneath *workspace*, relative to it."""
    return {
        os.path.relpath(piece.path, workspace)
        for piece in policy.view.pieces
        if isinstance(piece.part, Bind) and not piece.writable
        if piece.path.startswith(f"{workspace}/")
    }
