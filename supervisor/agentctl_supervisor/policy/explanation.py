"""Convert a policy to data for people and programs: what a run would get, and why."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from agentctl_protocol.os_names import display, to_text
from agentctl_protocol.report import SCHEMA, Limit
from agentctl_protocol.spawning import Bind, Cover, Scratch
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy import environment, protected
from agentctl_supervisor.policy.decision import Policy
from agentctl_supervisor.policy.view import Piece, Rank


class Shown(msgspec.Struct, frozen=True):
    """A path, and the reason why it is in the view or must not be."""

    path: str
    why: str


class InMemory(msgspec.Struct, frozen=True):
    """The run's own directory in memory, which disappears with the run."""

    path: str
    size_bytes: int


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The description of what a run would get.

    ``everything``: the run sees and reaches everything that its caller does.  The lists of paths
    are then empty.
    ``own_uid``: the run has its own uid.
    ``workspace_why``: the reason why the workspace is a fresh one.
    ``protected``: names in the workspace that the run cannot change.
    ``exposed``: names that exist and that the run can change, with the reason.
    ``missing``: names that do not exist; the report lists them if the run makes them.
    ``environment``: variables with the caller's value.
    ``environment_own``: variables with the run's own value.
    ``unseen``: paths in the caller's variables that the run does not see.
    ``calls``: rules for the gate.
    ``origins``: the places where settings come from.
    ``steps``: the restrictions of the run, in order, as its keepers list them.
    """

    schema: int = SCHEMA
    command: str
    sandbox: Sandbox
    network: Network
    everything: bool
    own_uid: bool
    cwd: str
    workspace: str = ""
    workspace_private: bool = False
    workspace_why: str = ""
    writable: tuple[Shown, ...] = ()
    readable: tuple[Shown, ...] = ()
    in_memory: tuple[InMemory, ...] = ()
    covered: tuple[Shown, ...] = ()
    protected: tuple[Shown, ...] = ()
    exposed: tuple[Shown, ...] = ()
    missing: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    environment_own: tuple[str, ...] = ()
    unseen: tuple[Shown, ...] = ()
    limits: tuple[Limit, ...] = ()
    calls: tuple[str, ...] = ()
    stop_when: str = ""
    origins: dict[str, str] = {}
    steps: tuple[Any, ...] = ()


def explain(
    spec: RunSpec,
    policy: Policy,
    *,
    own_uid: bool,
    limits: tuple[Limit, ...] = (),
    steps: tuple[Any, ...] = (),
) -> Explanation:
    """Return the description of *policy*, the policy of *spec*."""
    pieces = policy.view.pieces
    own = () if policy.workspace is None else environment.OWN
    return Explanation(
        command=spec.command,
        sandbox=policy.level,
        network=policy.network,
        everything=policy.workspace is None,
        own_uid=own_uid,
        cwd=to_text(policy.cwd),
        workspace=policy.workspace.told if policy.workspace else "",
        workspace_private=policy.workspace is not None and policy.workspace.private,
        workspace_why=policy.workspace.why if policy.workspace else "",
        writable=_shown(pieces, writable=True),
        readable=_shown(pieces, writable=False),
        in_memory=tuple(
            InMemory(to_text(piece.path), piece.part.size_bytes)
            for piece in pieces
            if isinstance(piece.part, Scratch) and piece.rank < Rank.COVERED
        ),
        covered=tuple(
            Shown(to_text(piece.path), piece.why)
            for piece in pieces
            if isinstance(piece.part, Cover) or piece.rank is Rank.COVERED
        ),
        protected=tuple(
            Shown(_inside(piece.path, policy), piece.why)
            for piece in pieces
            if piece.rank is Rank.PROTECTED
        ),
        exposed=tuple(Shown(_inside(path, policy), why) for path, why in policy.exposed),
        missing=_missing(spec, policy),
        unprotected=tuple(map(to_text, spec.unprotect)),
        environment=tuple(sorted(map(to_text, set(policy.env) - set(own)))),
        environment_own=own,
        unseen=tuple(Shown(to_text(path), f"named by {name}") for name, path in policy.unseen),
        limits=limits,
        calls=tuple(_call_rules(spec)),
        stop_when="" if spec.stop_when is None else str(spec.stop_when),
        origins={key: display(origin) for key, origin in spec.origins.items()},
        steps=steps,
    )


def _call_rules(spec: RunSpec) -> Iterator[str]:
    """Yield the gate's rules for calls, one rule a line."""
    for word, patterns in (
        ("only", spec.allow),
        ("never", spec.deny),
        ("with approval", spec.approve),
    ):
        if patterns:
            yield f"{word}: {', '.join(patterns)}"
    for pattern, most in spec.calls_of.items():
        yield f"at most {most}: {pattern}"


def _shown(pieces: tuple[Piece, ...], *, writable: bool) -> tuple[Shown, ...]:
    return tuple(
        Shown(to_text(piece.path), piece.why)
        for piece in pieces
        if isinstance(piece.part, Bind)
        and piece.writable == writable
        and not piece.is_pin
        and piece.rank is not Rank.PROTECTED
    )


def _inside(path: str, policy: Policy) -> str:
    """Return *path* relative to the workspace if it lies there, else unchanged."""
    assert policy.workspace is not None
    return to_text(path).removeprefix(policy.workspace.told.rstrip("/") + "/")


def _missing(spec: RunSpec, policy: Policy) -> tuple[str, ...]:
    if policy.workspace is None or policy.workspace.private:
        return ()
    at = policy.workspace.path
    return tuple(
        name
        for name in protected.names(spec.unprotect)
        if not os.path.lexists(os.path.join(at, name))
    )
