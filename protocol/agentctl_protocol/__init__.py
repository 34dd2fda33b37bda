"""The protocol of agentctl: messages, framing, log records, specs and reports.

* **Channel** (`messages`, `framing`, `channel_state`, `channel`): two pipes directly between
  supervisor and agent. They carry a 4-byte length, then msgpack: one tagged struct or a batch of
  them. Frames are length-prefixed, because line framing lost synchronisation as soon as a tool
  printed.
* **No side is trusted.** Every byte is validated and bounded. An illegal byte raises one named
  error and changes nothing.
* **Two tables** decide which side may say what in which state. Nothing else decides that.
* **Log** (`records`): the same messages with their source, written down before they are acted
  upon.
* **Control** (`control`): ping, stop and kill for any client of any version.
* **Spawning** (`spawning`): packets between the trusted processes.

This package does no I/O, starts no thread and reads no clock. It needs msgspec only.
"""

from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError, ProtocolError
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Reason, Result, Rung, Sandbox, State

__version__ = "0.1.0"

__all__ = [
    "LocalProtocolError",
    "PeerProtocolError",
    "ProtocolError",
    "Reason",
    "Report",
    "Result",
    "RunSpec",
    "Rung",
    "Sandbox",
    "SpecError",
    "State",
]
