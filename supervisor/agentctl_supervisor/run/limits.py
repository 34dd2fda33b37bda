"""Decides which of its limits a run has reached.  Pure."""

from dataclasses import dataclass

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason
from agentctl_supervisor.gate.gate import Gate


@dataclass(frozen=True)
class Reached:
    """A limit that ends the run, and the sentence that says so."""

    reason: Reason
    detail: str


def reached(spec: RunSpec, gate: Gate, child_bytes: int, tokens: int) -> Reached | None:
    """Return the first limit that a run of *spec* has reached with its output and its calls.

    Called after each message of the agent and each piece of its output.
    """
    most = spec.output_bytes
    if most is not None and child_bytes > most:
        return Reached(Reason.OUTPUT, f"output limit of {most} bytes")
    refusal = gate.exceeded or gate.used(tokens)
    if refusal is not None and refusal.limit is not None:
        return Reached(refusal.limit, refusal.why)
    return None
