"""Log records: the bytes that are written down about a run.

A segment file is a header and then records::

    segment:  magic (8 bytes) | format version (u32) | length of run id (u32) | run id
    record:   length of body (u32) | crc32 (u32) | sequence (u64) | wall time, ns (u64) | by (u8)
              | body

All integers are big-endian. The crc covers everything of the record after the crc itself. ``by``
names the source that is responsible for the record (`By`). The body is a msgpack map with a
``type``. A record of the child has as its body the very message that the child sent. A batch of n
events takes n sequence numbers; every other record takes one. Readers skip and count types that
they do not know.
"""

import struct
import zlib
from typing import Final, Literal, TypeAlias

import msgspec

from agentctl_protocol.errors import UNREADABLE, one_line
from agentctl_protocol.messages import (
    Ask,
    Bye,
    CallFinished,
    CallKind,
    ErrorMessage,
    Events,
    Hello,
    Ready,
    ResultMessage,
)
from agentctl_protocol.report import Actor, FiredCondition, Processes, Survivor, Workspace
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung

MAGIC: Final = b"AGCTLLOG"
FORMAT_VERSION: Final = 1
SEGMENT_HEADER: Final = struct.Struct(">8sII")
RECORD_HEADER: Final = struct.Struct(">IIQQB")
MAX_BODY: Final = (1 << 20) + 4096
"""The longest body: a channel frame, or a piece of output, with a little around it."""

_UNCHECKED: Final = struct.Struct(">II")
_CHECKED: Final = struct.Struct(">QQB")


class _Written(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A record whose facts are the supervisor's own."""


class Created(_Written, frozen=True, tag="created"):
    """The run exists. ``boot_id`` and identities tell a later reader if its keepers live.

    ``unseen_variables``: names of variables whose value is the path of something that exists and
    that the run does not see. ``oom_kills``: the number of processes that the kernel had killed by
    then because memory was used up; -1 unknown. ``pid_namespace``: inode of the pid namespace to
    which all pids of the log belong; 0 unknown.
    """

    supervisor: ProcessIdentity
    boot_id: str
    socket: str = ""
    uid: int = 0
    workspace: str = ""
    private_workspace: bool = False
    unseen_variables: tuple[str, ...] = ()
    oom_kills: int = -1
    pid_namespace: int = 0


class ContainedRecord(_Written, frozen=True, tag="contained"):
    """The run's keepers are up. ``cgroup`` is a path below the cgroup v2 mount, mount included."""

    warden: ProcessIdentity
    root: ProcessIdentity
    containment: Containment
    namespace: int | None = None
    cgroup: str = ""


class Started(_Written, frozen=True, tag="started"):
    """The agent's first instruction may run from here on."""

    layers: tuple[str, ...] = ()


class Output(_Written, frozen=True, tag="output"):
    """The bytes that the run wrote to stdout or stderr, in the order in which they were read.

    Between two streams that is not the order in which they were written. ``both``: the streams
    were one pipe, so that it is; then it is not known to which of the two a byte was written.
    """

    stream: Literal["stdout", "stderr"]
    data: bytes
    both: bool = False


class Waiting(_Written, frozen=True, tag="waiting"):
    """An ask waits for a person's verdict, because of the ``rule``.

    ``number`` is the supervisor's number for it: 1, 2, 3 ... in this run, never used again.
    ``call`` is the agent's id. The number is 0 in logs of versions that gave none.
    """

    call: str
    kind: CallKind
    name: str
    rule: str
    number: int = 0


class VerdictRecord(_Written, frozen=True, tag="verdict"):
    """An answer of the gate, written before it is sent. A grant *is* the start of the call.

    ``actor``: the person who gave the answer, if a person did.
    """

    call: str
    kind: CallKind
    name: str
    verdict: Literal["granted", "refused"]
    why: str = ""
    args: msgspec.Raw = msgspec.Raw(b"\xc0")
    actor: Actor | None = None


class InputSent(_Written, frozen=True, tag="input"):
    """An item was sent to the running agent (only its size is logged: it may be a secret)."""

    bytes: int


class ConditionsMet(_Written, frozen=True, tag="conditions_met"):
    """The run's termination condition is met; ``conditions`` is all of it that happened.

    A stop follows.
    """

    conditions: tuple[FiredCondition, ...]


class Stop(_Written, frozen=True, tag="stop"):
    """The decision to end the run: from here on no call is granted. There is at most one.

    ``intent``: another process made the decision while the holder did not answer, and it was added
    later. ``at_ns``: the time of the decision in that case, in wall-clock nanoseconds; 0 is the
    time of the record.
    """

    result: Result
    reason: Reason
    detail: str
    actor: Actor
    grace_s: float
    term_grace_s: float
    kill: bool = False
    intent: bool = False
    at_ns: int = 0


class RungRecord(_Written, frozen=True, tag="rung"):
    """A step of the ladder was taken. ``processes`` were alive just before it.

    ``open_files``: the files of the workspace that they had open for writing, looked for before
    SIGKILL only. ``open_unread``: why there may be more. ``at_ns``: the time in wall-clock
    nanoseconds, if another process took the step while the holder did not answer; 0 is the time of
    the record. ``at_least``: as in `report.Processes`.
    """

    step: Rung
    processes: int = 0
    at_ns: int = 0
    open_files: tuple[str, ...] = ()
    open_unread: str = ""
    at_least: bool = False


class Answered(_Written, frozen=True, tag="answered"):
    """The agent's answer to a rung: ``yes``, ``no``, ``no channel``, ``asked for a call``."""

    step: Rung
    how: str


class Exit(_Written, frozen=True, tag="exit"):
    """The agent's process ended. With neither code nor signal, it is not known how.

    ``left``: the number of living processes that it left behind; they were then killed. ``at_ns``:
    the time when nothing was left of it, if that is known better than by the record's time.
    ``orphaned``: its keepers killed it because their supervisor was gone.
    """

    code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    left: int = 0
    at_ns: int = 0
    detail: str = ""
    orphaned: bool = False


class Illegal(_Written, frozen=True, tag="illegal"):
    """The child broke the protocol; the channel is closed."""

    detail: str


class RefusedRecord(_Written, frozen=True, tag="refused"):
    """The run never started."""

    reason: Reason
    detail: str
    hint: str = ""


class Estimate(_Written, frozen=True, tag="estimate"):
    """The tokens of a model call that was cut short, counted by the ``estimator`` of that name.

    They are counted from its request and the text that it streamed, because the model did not
    report them.
    """

    call: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    estimator: str


class WorkspaceRecord(_Written, frozen=True, tag="workspace"):
    """The run's changes to its workspace, read when its tree was empty."""

    workspace: Workspace


class End(_Written, frozen=True, tag="end"):
    """The last record: the tree is empty, or the record names what is left of it.

    ``at_ns``: the last moment of which something is known, in wall-clock nanoseconds, if a later
    process wrote the record; 0: the time of the record.
    """

    processes: Processes = Processes()
    survivors: tuple[Survivor, ...] = ()
    torn_bytes: int = 0
    dropped_bytes: int = 0
    detail: str = ""
    at_ns: int = 0


class Observed(msgspec.Struct, frozen=True):
    """The observations of a process that stopped a run in its holder's place.

    They are left beside the intent. The holder adds them to the log when the run is over:
    ``steps`` in the order in which they were taken. ``at_ns``: the time when that stop was over,
    in wall-clock nanoseconds; 0 unknown.
    """

    steps: tuple[RungRecord | Answered, ...]
    processes: Processes
    at_ns: int = 0


class Lost(_Written, frozen=True, tag="lost"):
    """The run was found without its supervisor, by the writer; ``detail`` says what is known."""

    detail: str


ChildRecord: TypeAlias = (
    Hello | Ready | Events | Ask | CallFinished | ResultMessage | ErrorMessage | Bye
)
SupervisorRecord: TypeAlias = (
    Created
    | ContainedRecord
    | Started
    | Output
    | Waiting
    | VerdictRecord
    | InputSent
    | ConditionsMet
    | Stop
    | RungRecord
    | Answered
    | Exit
    | Illegal
    | RefusedRecord
    | Estimate
    | WorkspaceRecord
    | End
    | Lost
)
RecordBody: TypeAlias = ChildRecord | SupervisorRecord


class Record(msgspec.Struct, frozen=True):
    """A record as it was read: ``body`` is None for a type that this version does not know."""

    seq: int
    time_ns: int
    by: By
    body: RecordBody | None


def segment_header(run_id: str) -> bytes:
    """Return the first bytes of a segment of *run_id*'s log."""
    encoded = run_id.encode()
    return SEGMENT_HEADER.pack(MAGIC, FORMAT_VERSION, len(encoded)) + encoded


def pack_record(seq: int, time_ns: int, by: By, body: bytes) -> bytes:
    """Return one record with its header."""
    checked = _CHECKED.pack(seq, time_ns, by)
    crc = zlib.crc32(body, zlib.crc32(checked))
    return b"".join((_UNCHECKED.pack(len(body), crc), checked, body))


def crc_of(seq: int, time_ns: int, by: int, body: bytes | memoryview) -> int:
    """Return the crc that `pack_record` would write."""
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(seq, time_ns, by)))


# The verdict exists as a message and as a record, with the same tag: ``by`` tells them apart.
_child_decoder: msgspec.msgpack.Decoder[ChildRecord] = msgspec.msgpack.Decoder(ChildRecord)
_supervisor_decoder: msgspec.msgpack.Decoder[SupervisorRecord] = msgspec.msgpack.Decoder(
    SupervisorRecord
)


def decode_body(by: By, body: bytes | memoryview) -> RecordBody | None:
    """Return the body's struct, or None if its type is not known here.

    Raises:
        msgspec.DecodeError: it is not a record body at all.
    """
    try:
        if by is By.CHILD:
            return _child_decoder.decode(body)
        return _supervisor_decoder.decode(body)
    except msgspec.ValidationError:
        return None
    except UNREADABLE as error:
        raise msgspec.DecodeError(one_line(error)) from None
