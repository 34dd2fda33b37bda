"""The protocol of agentctl: messages, framing, log records, specs and reports.

* **Channel** (`messages`, `framing`, `channel_state`, `channel`): two pipes
  straight between supervisor and agent.  4-byte length, msgpack, one tagged struct
  or a batch of them.  Length-prefixed, because line framing lost synchronisation
  as soon as a tool printed.
* **Nobody is trusted.**  Every byte is validated and bounded; an illegal one
  raises one named error and changes nothing.
* **Two tables** say who may say what when.  Nothing else does.
* **Log** (`records`): the same messages, with who vouches for them, written down
  before they are acted upon.
* **Control** (`control`): ping, stop and kill for any client of any version.
* **Spawning** (`spawning`): packets between the trusted processes.

This package does no I/O, starts no thread and reads no clock.  It needs msgspec only.
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
