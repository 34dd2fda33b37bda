"""Does to its own ends of the channel what the kernel lets it do; the argument says what.

Those that end say what they have to say meanwhile; the others print ``up`` and stay.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import sys
import tempfile

from raw_channel import Value, frame, pack

READS, WRITES = map(int, os.environ["AGENTCTL_CHANNEL_FD"].split(","))
LONG_TEXT = "x" * 200_000


def conversation(text: str = "said") -> bytes:
    """All that an agent without calls says."""
    event: Value = {"type": "text", "text": text}
    messages: list[Value] = [
        {"type": "hello", "version": 1},
        {"type": "ready"},
        {"type": "events", "first": 1, "events": [event]},
        {"type": "bye"},
    ]
    return b"".join(frame(pack(message)) for message in messages)


def write(data: bytes, step: int = 1 << 20) -> None:
    while data:
        data = data[os.write(WRITES, data[:step]) :]


def stay() -> None:
    print("up", flush=True)
    signal.pause()


def packets() -> None:
    """Each write is a packet, which a read gives alone: a byte at a time."""
    fcntl.fcntl(WRITES, fcntl.F_SETFL, os.O_DIRECT)
    write(conversation(), step=1)


def small() -> None:
    """Pipes of one page, in both directions, and a long event through it."""
    for end in (READS, WRITES):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 4096)
    write(conversation(LONG_TEXT))


def large() -> None:
    """As large as a user may make them."""
    for end in (READS, WRITES):
        fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1 << 20)
    write(conversation(LONG_TEXT))


def nonblocking() -> None:
    """Nothing of ours may follow from a flag that it sets on its ends."""
    for end in (READS, WRITES):
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    write(conversation())


def spliced() -> None:
    """What it says comes out of a file that is cut to nothing meanwhile."""
    data = conversation()
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        os.splice(file.fileno(), WRITES, len(data), offset_src=0)
        os.ftruncate(file.fileno(), 0)


def gifted() -> None:
    """What it says is memory that changes while it is read."""
    libc = ctypes.CDLL(None, use_errno=True)
    data = frame(pack({"type": "hello", "version": 1}))
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    memory[: len(data)] = data
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    vector = struct.pack("PL", address, len(data))
    if libc.vmsplice(WRITES, vector, ctypes.c_size_t(1), 0) != len(data):
        raise OSError(ctypes.get_errno(), "vmsplice")
    print("up", flush=True)
    while True:
        memory[4] ^= 0xFF


def answers_itself() -> None:
    """Writes to the pipe that it reads from, until nobody else can."""
    own = os.open(f"/proc/self/fd/{READS}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(own, bytes(65_536))
    except BlockingIOError:
        stay()


def takes_back() -> None:
    """Reads what it has written, as often before the supervisor as after it."""
    own = os.open(f"/proc/self/fd/{WRITES}", os.O_RDONLY | os.O_NONBLOCK)
    beat = frame(pack({"type": "hello", "version": 1}))[:3]
    print("up", flush=True)
    while True:
        try:
            os.write(WRITES, beat)
            os.read(own, 65_536)
        except BlockingIOError:
            pass


def deaf() -> None:
    """Nobody reads what it is told, on any pipe."""
    os.close(0)
    write(conversation()[: -len(frame(pack({"type": "bye"})))])
    os.close(READS)
    stay()


def mute() -> None:
    """Nobody says anything."""
    os.close(WRITES)
    stay()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
