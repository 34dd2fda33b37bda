"""The packets between supervisor, spawner, warden and init while a run is alive.

They travel between trusted processes of one installation and are not part of the frozen channel:
both ends always have the same version. If no end is inside a run, they use SEQPACKET sockets: one
msgpack message per packet, with descriptors beside it. Between warden and init they use pipes, one
frame per packet: a run could get hold of these ends, so they carry no descriptors.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from agentctl_protocol.vocabulary import Containment, Network, Sandbox

#: The environment variable that names a program's two ends of the channel; `channel_descriptors`
#: reads it.
CHANNEL_FD_VARIABLE: Final = "AGENTCTL_CHANNEL_FD"
RUN_ID_VARIABLE: Final = "AGENTCTL_RUN_ID"


class _Packet(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A packet between trusted processes."""


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process that cannot be confused with a later process of the same number.

    ``start_time`` is field 22 of ``/proc/<pid>/stat``, in clock ticks since boot; it means nothing
    under another ``boot_id``.
    """

    pid: int
    start_time: int


class SpawnerReady(_Packet, frozen=True, tag="spawner_ready"):
    """The spawner's first packet on its request socket: it can fork runs now.

    ``pid_namespace``: why runs cannot have a pid namespace here; empty if they can. ``sealed``: in
    the subreaper fallback, agents can be kept from touching their keepers. Both were tried in a
    throwaway process, not guessed.
    """

    pid: int
    pid_namespace: str = ""
    sealed: bool = True


class LaunchPacket(_Packet, frozen=True, tag="launch_packet"):
    """A request (supervisor → spawner) to fork a warden for the `Launch` in the memfd beside it.

    Descriptors beside it, in this order: the memfd, the warden's end of the status socket, a pipe
    from which one byte lets the agent begin, the two ends of the channel that the agent reads and
    writes, its stdin, stdout and stderr, and, if ``cgroup``, the run's cgroup directory. The
    spawner closes all of them after the fork; it never reads the memfd. ``containment`` repeats
    the Launch's: from the first subreaper run on, the spawner must outlive its supervisor for a
    moment, to sweep.
    """

    run: str
    cgroup: bool = False
    containment: Containment = Containment.PID_NAMESPACE


class Bind(_Packet, frozen=True, tag="bind"):
    """A file or directory of the host, at the same path.

    ``mapped``: if the run has a uid of its own, files of this path's owner appear as the run's (an
    idmapped mount). ``device``: a device node; only such a node may work as one. ``optional``:
    left out if it does not exist. ``own``: for this run alone, so that no program outside opens
    what is in there; FIFOs may be made.
    """

    path: bytes
    writable: bool = False
    mapped: bool = False
    device: bool = False
    optional: bool = False
    own: bool = False


class Scratch(_Packet, frozen=True, tag="scratch"):
    """An empty directory in memory that belongs to the run and is gone with it."""

    path: bytes
    size_bytes: int
    mode: int = 0o700


class Cover(_Packet, frozen=True, tag="cover"):
    """An empty read-only directory, or an empty file, over what is there.

    ``optional``: over something that comes and goes, as a socket does. It is out of reach wherever
    it is moved to, and left out if it is not there.
    """

    path: bytes
    optional: bool = False


class Text(_Packet, frozen=True, tag="text"):
    """A small read-only file of ours."""

    path: bytes
    data: bytes


class Link(_Packet, frozen=True, tag="link"):
    """A symbolic link."""

    path: bytes
    target: bytes


Part: TypeAlias = Bind | Scratch | Cover | Text | Link
"""A part of what a run sees. Paths are absolute, without ``.``, ``..`` or a symbolic link."""


class Launch(_Packet, frozen=True, tag="launch"):
    """A run to start. It is sent in a sealed memfd, because an argument list may be 2 MB long.

    The memfd and the other descriptors go to the spawner with a `LaunchPacket`.

    ``deadline_s``: seconds from now after which the warden kills the run by itself. ``argv`` and
    ``env`` hold bytes as the kernel will see them. ``host_uid``: the run's uid and gid on the host
    (root callers only); None keeps the caller's. ``sealed``: in the subreaper fallback, forbid the
    agent to touch its keepers. ``view``: everything that the agent sees. At strict its private
    root is made of these parts in this order, parents first. At standard only its Binds count:
    Landlock lets the agent reach them. ``/proc`` and ``/dev`` are added without being listed.
    ``network``: NONE removes the network. ``exit_file``: the file in which the warden writes its
    last message as JSON if its supervisor is gone; empty: nowhere.
    """

    run: str
    sandbox: Sandbox
    containment: Containment
    env: dict[bytes, bytes]
    cwd: bytes
    argv: tuple[bytes, ...] = ()
    target: str = ""
    python: bytes = b""
    paths: tuple[str, ...] = ()
    deadline_s: float | None = None
    host_uid: int | None = None
    sealed: bool = True
    view: tuple[Part, ...] = ()
    network: Network = Network.HOST
    exit_file: bytes = b""


# --- warden → supervisor --------------------------------------------------


class Contained(_Packet, frozen=True, tag="contained"):
    """The run's keepers are up, and from now on the run can be killed.

    The packet carries pidfds of the warden and of the *root*: init if there is a pid namespace,
    else the agent. ``namespace`` is the inode of the pid namespace.
    """

    warden: ProcessIdentity
    root: ProcessIdentity
    containment: Containment
    namespace: int | None = None


class Running(_Packet, frozen=True, tag="running"):
    """The agent's program was executed, or its function's process is about to greet.

    ``layers`` were read back from the kernel inside the agent's process, as the last step before
    its first instruction.
    """

    layers: tuple[str, ...] = ()


class Refused(_Packet, frozen=True, tag="refused"):
    """The run did not start; nothing of it is left.

    ``fault``: ``not_found`` and ``not_executable`` are the caller's program, ``sandbox`` is a
    protection that is not available, ``system`` is anything else.
    """

    fault: Literal["not_found", "not_executable", "sandbox", "system"]
    detail: str
    hint: str = ""


class Exited(_Packet, frozen=True, tag="exited"):
    """The run's tree is empty, or cannot be emptied. This is the last packet of a warden.

    ``code`` or ``signal`` is the agent's own end; neither is known if init was killed first.
    ``left``: how many processes were alive when the agent ended, and were killed then. ``at_ns``:
    the time when the tree was empty, in wall-clock nanoseconds; the supervisor may read this much
    later. ``deadline``: the warden's own timer ended it. ``blocked_by``: pid of a process outside
    that delays init's end (a tracer, or a parent of a process that joined by setns). ``orphaned``:
    the warden ended it because the supervisor, or the spawner, was gone.
    """

    code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    left: int = 0
    at_ns: int = 0
    deadline: bool = False
    survivors: tuple[ProcessIdentity, ...] = ()
    blocked_by: int | None = None
    orphaned: bool = False


Status: TypeAlias = Contained | Running | Refused | Exited


# --- supervisor → warden, and warden → init -------------------------------


class Terminate(_Packet, frozen=True, tag="terminate"):
    """Send SIGTERM, then SIGCONT, to every process of the run."""


class Kill(_Packet, frozen=True, tag="kill"):
    """Send SIGKILL to every process of the run until none is left."""


class Deadline(_Packet, frozen=True, tag="deadline"):
    """Kill the run ``after_s`` seconds from now, even if the sender is gone; only shortens."""

    after_s: float


Order: TypeAlias = Terminate | Kill | Deadline


# --- init → warden --------------------------------------------------------


class InitReady(_Packet, frozen=True, tag="init_ready"):
    """Init runs, in the pid namespace with this inode."""

    namespace: int = 0


class AgentExited(_Packet, frozen=True, tag="agent_exited"):
    """The agent's wait status, as os.waitid gave it; init ends right after.

    ``left``: how many living processes it leaves behind; they are killed now.
    """

    code: int | None = None
    signal: int | None = None
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    left: int = 0


FromInit: TypeAlias = InitReady | Running | Refused | AgentExited


def pack(packet: _Packet) -> bytes:
    """Return the bytes of one packet."""
    return msgspec.msgpack.encode(packet)


def channel_descriptors(text: str) -> tuple[int, int]:
    """Return the descriptors that an agent reads from and writes to, from `CHANNEL_FD_VARIABLE`.

    Raises:
        ValueError: it is not two decimal numbers with a comma between them.
    """
    reads, comma, writes = text.partition(",")
    if not (comma and reads.isdecimal() and writes.isdecimal()):
        raise ValueError(f"not two descriptors: {text[:40]!r}")
    return int(reads), int(writes)
