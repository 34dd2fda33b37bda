"""Implements ``agentctl run --explain``: shows what a run would get, and runs nothing."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import CONFINED, Network, Sandbox
from agentctl_supervisor.cli.terminal.console import clip, line_width, out, out_json, plain
from agentctl_supervisor.cli.wording.phrases import show_limit, show_size
from agentctl_supervisor.filesystem.state_paths import state_root
from agentctl_supervisor.policy import sockets
from agentctl_supervisor.policy.explanation import Explanation, Shown, explain
from agentctl_supervisor.processes import isolated_python
from agentctl_supervisor.processes.own_uids import OwnUids
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.run.launch import policy_of, settled

_LABEL_COLUMNS: Final = 13
_STEPS_WITHIN_S: Final = 10.0
_STEPS_BYTES: Final = 1 << 20
_ID: Final = "r-xxxxxxxx"
"""A placeholder for the run's id, since there is no run."""
_NETWORKS: Final = {
    Network.NONE: "none: a loopback of its own",
    Network.HOST: "host: all that you reach",
}
_LATER: Final = ", and sockets that services make in its directories while it runs"


def run(spec: RunSpec, *, as_json: bool) -> int:
    """Print the policy of *spec* and return the exit code."""
    explanation = _explained(spec)
    if as_json:
        out_json(explanation)
        return 0
    for line in page(explanation, line_width()):
        out(line)
    return 0


def _explained(spec: RunSpec) -> Explanation:
    spec = settled(spec, os.environ)
    assert spec.sandbox is not None
    own_uid = None
    if os.geteuid() == 0 and spec.sandbox in CONFINED:
        own_uid = OwnUids(os.getpid()).take()
    directory = os.path.join(state_root(os.environ), "runs", _ID)
    policy = policy_of(spec, os.environ, run_directory=directory, own_uid=own_uid)
    return explain(
        spec,
        policy,
        own_uid=own_uid is not None,
        limits=Fold(_ID, spec).report().limits,
        steps=_steps(spec.sandbox, _facts_against(own_uid, policy.network)),
    )


def _facts_against(own_uid: int | None, network: Network) -> set[str]:
    """Return the conditions of steps that are false for the run."""
    against = set()
    if os.geteuid() == 0:
        against.add("user namespace")
    if own_uid is None:
        against.add("own uid")
    if network is Network.HOST:
        against.add("network none")
    return against


def _steps(level: Sandbox, against: set[str]) -> tuple[Any, ...]:
    """Return the steps as the keepers list them; empty if they cannot be asked."""
    try:
        done = subprocess.run(
            isolated_python.command("agentctl_child.keepers.steps", level),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_STEPS_WITHIN_S,
            check=True,
            cwd="/",
        )
        told = msgspec.json.decode(done.stdout[:_STEPS_BYTES], type=list[dict[str, Any]])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, UnicodeDecodeError):
        return ()
    return tuple(step for step in told if not against.intersection(step.get("when", ())))


def page(explanation: Explanation, columns: int) -> list[str]:
    """Return the lines of the page, none wider than *columns*."""
    lines: list[str] = []
    for label, text in _facts(explanation):
        lines += _labelled(label, plain(text), columns)
    if explanation.steps:
        lines.append("steps, in this order")
    for number, step in enumerate(explanation.steps, 1):
        lines += _labelled(f"{number:>4} {step.get('name', '')}", "", columns)
        said = f"{step.get('what', '')} ({step.get('why', '')})"
        lines += _labelled("", plain(said), columns)
    return lines


def _facts(it: Explanation) -> Iterator[tuple[str, str]]:
    yield "command", it.command
    yield "sandbox", f"{it.sandbox} {_origin(it, 'sandbox')}"
    if it.everything:
        yield "sees", "all that you see, and may write to all that you may"
        yield "network", f"{_NETWORKS[it.network]} {_origin(it, 'net')}"
        yield "starts in", it.cwd
        yield "environment", f"{len(it.environment)} variables, all that you have"
    else:
        yield from _confined(it)
    if it.limits:
        yield "limits", ", ".join(show_limit(limit) for limit in it.limits)
    for rule in it.calls:
        yield "calls", rule
    if it.stop_when:
        yield "ends when", it.stop_when


def _confined(it: Explanation) -> Iterator[tuple[str, str]]:
    later = it.sandbox is Sandbox.STRICT and it.network is Network.NONE
    network = _NETWORKS[it.network] + (_LATER if later else "")
    yield "network", f"{network} {_origin(it, 'net')}"
    yield "user", "one of its own, called agent" if it.own_uid else "you, without privileges"
    origin = _origin(it, "workspace") if "workspace" in it.origins else ""
    fresh = f"(a fresh one: {os.getcwd()} is {it.workspace_why})" if it.workspace_private else ""
    yield "workspace", " ".join(filter(None, (it.workspace, fresh, origin)))
    if it.cwd != it.workspace:
        yield "starts in", it.cwd
    more = [shown.path for shown in it.writable if shown.path != it.workspace]
    if more:
        yield "writes to", ", ".join(more)
    if it.in_memory:
        yield "in memory", ", ".join(f"{m.path} {show_size(m.size_bytes)}" for m in it.in_memory)
    by_why = sorted(it.readable, key=lambda shown: (shown.why != "the system", shown.why))
    for number, (why, among) in enumerate(groupby(by_why, lambda shown: shown.why)):
        yield "reads" if number == 0 else "", f"{why}: {_listed(list(among))}"
    services = [shown.path for shown in it.covered if shown.why == sockets.WHY]
    if services:
        yield "no reach", f"sockets of services: {', '.join(services)}; --rw gives it one"
    if hidden := [shown.path for shown in it.covered if shown.why != sockets.WHY]:
        yield "hidden", ", ".join(hidden)
    if it.protected:
        yield "protected", ", ".join(shown.path for shown in it.protected)
    for shown in it.exposed:
        yield "EXPOSED", f"{shown.path}: {shown.why}"
    if it.unprotected:
        yield "unprotected", ", ".join(it.unprotected)
    if it.missing:
        yield (
            "not there",
            f"{len(it.missing)} protected names; the report tells which of them the run made",
        )
    yield "environment", f"yours: {' '.join(it.environment) or 'nothing'}"
    yield "", f"its own: {' '.join(it.environment_own)}"
    for shown in it.unseen:
        yield "NOT SEEN", f"{shown.path} ({shown.why}): --ro shows it to the run"


def _listed(shown: Sequence[Shown]) -> str:
    etc = [one.path for one in shown if one.path.startswith("/etc/")]
    rest = [one.path for one in shown if not one.path.startswith("/etc/")]
    if len(etc) > 3:
        rest.append(f"{len(etc)} files and directories of /etc")
        etc = []
    return ", ".join((*rest, *etc))


def _origin(it: Explanation, key: str) -> str:
    return f"({it.origins.get(key, 'default')})"


def _labelled(label: str, text: str, columns: int) -> Iterator[str]:
    from textwrap import wrap

    pieces = wrap(text, columns - _LABEL_COLUMNS, break_on_hyphens=False) or [""]
    for number, line in enumerate(pieces):
        front = label if number == 0 else ""
        yield clip(f"{front.ljust(_LABEL_COLUMNS)}{line}", columns).rstrip()
