"""Agents that misuse asking for calls; each function is a target of its own.

``after_the_end`` goes on asking from a thread once its function has returned;
``borrowed_connection`` decides on its own call over a connection that a dead process made.
As programs: ``own_verdict`` sends itself a verdict; ``flood N`` asks for N calls and waits for
none; ``same_id`` asks again by the id that waits; ``after_the_result`` asks when it has said its
result; ``call_named ID...`` asks by ids of its choice; ``buried`` hides a call among many.
"""

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agentctl_child import run
from agentctl_protocol.channel import agent_end
from agentctl_protocol.control import VerdictRequest
from agentctl_protocol.framing import frame
from agentctl_protocol.messages import Ask, Hello, Ready, ResultMessage


def after_the_end() -> str:
    """Its thread asks as soon as the value is sent, and writes the answers to a file."""
    answers = Path(run.input)

    def ask() -> None:
        while True:
            try:
                with run.tool_call("late"):
                    answer = "made"
            except BaseException as error:
                answer = repr(error)
            with answers.open("a") as file:
                file.write(answer + "\n")
            time.sleep(0.02)

    thread = threading.Thread(target=ask)
    with run.tool_call("early"):
        thread.start()
    return "over"


def borrowed_connection() -> None:
    """A child connects and dies; its parent speaks over what it left, while the call waits."""
    import msgspec

    connection = socket.socket(socket.AF_UNIX)
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            connection.connect(run.input)
        os._exit(0)
    os.wait()
    threading.Thread(target=_wait_for_call, daemon=True).start()
    request = VerdictRequest(run=run.id, call="c1", granted=True)
    time.sleep(0.3)  # the ask is on its way; too early is refused in other words
    connection.sendall(frame(msgspec.msgpack.encode(request)))
    run.emit_message(repr(connection.recv(1 << 16)))
    threading.Event().wait()


def _wait_for_call() -> None:
    with run.tool_call("shell"):
        run.emit_message("made")


# --- programs that speak the channel themselves ------------------------------------


class _Pipes:
    """The agent's end of the channel."""

    def __init__(self) -> None:
        self._reads, self._writes = map(int, os.environ["AGENTCTL_CHANNEL_FD"].split(","))

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._writes, data) :]

    def recv(self, size: int) -> bytes:
        return os.read(self._reads, size)


def _channel() -> tuple[_Pipes, Any]:
    pipes = _Pipes()
    channel = agent_end()
    pipes.sendall(channel.send(Hello(version=1), Ready()))
    return pipes, channel


def _asks(channel: Any, *calls: str, name: str = "shell") -> bytes:
    return b"".join(channel.send(Ask(call=call, kind="tool", name=name)) for call in calls)


def own_verdict() -> None:
    """A verdict is no message of an agent's."""
    import msgspec

    pipes, channel = _channel()
    pipes.sendall(_asks(channel, "1"))
    verdict = {"type": "verdict", "call": "1", "verdict": "granted"}
    pipes.sendall(frame(msgspec.msgpack.encode(verdict)))
    threading.Event().wait()


def flood() -> None:
    """Asks for many calls at once, and reads no answer before the last is sent."""
    pipes, channel = _channel()
    threading.Thread(target=_discard, args=(pipes,), daemon=True).start()
    count = int(sys.argv[2])
    for start in range(0, count, 100):
        pipes.sendall(_asks(channel, *(str(n) for n in range(start, min(start + 100, count)))))
    print("asked", flush=True)
    threading.Event().wait()


def same_id() -> None:
    """The second ask is refused at once, and the first goes on waiting."""
    pipes, channel = _channel()
    pipes.sendall(_asks(channel, "1", "1"))
    print(_verdicts(pipes, 1), flush=True)
    print(_verdicts(pipes, 1), flush=True)


def after_the_result() -> None:
    """It asks once before its result, which waits, and once after it."""
    pipes, channel = _channel()
    pipes.sendall(_asks(channel, "before") + channel.send(ResultMessage()))
    pipes.sendall(_asks(channel, "after", name="other"))
    print(_verdicts(pipes, 2), flush=True)
    threading.Event().wait()


def call_named() -> None:
    """The ids of its calls are given, and may be anything."""
    pipes, channel = _channel()
    pipes.sendall(_asks(channel, *sys.argv[2:]))
    print(_verdicts(pipes, len(sys.argv) - 2), flush=True)


def buried() -> None:
    """One call among 255 that are all alike."""
    pipes, channel = _channel()
    pipes.sendall(_asks(channel, *(str(n) for n in range(100)), name="look"))
    pipes.sendall(_asks(channel, "the one", name="delete"))
    pipes.sendall(_asks(channel, *(str(n) for n in range(100, 255)), name="look"))
    print(len(_verdicts(pipes, 256)), flush=True)


def _discard(pipes: _Pipes) -> None:
    while pipes.recv(1 << 16):
        pass


def _verdicts(pipes: _Pipes, count: int) -> list[str]:
    """The next *count* verdicts: the word, and why."""
    import msgspec

    found: list[str] = []
    while len(found) < count:
        (length,) = struct.unpack(">I", _exactly(pipes, 4))
        said = msgspec.msgpack.decode(_exactly(pipes, length))
        found += [
            f"{message['verdict']}: {message.get('why', '')}"
            for message in (said if isinstance(said, list) else [said])
            if message["type"] == "verdict"
        ]
    return found


def _exactly(pipes: _Pipes, length: int) -> bytes:
    data = b""
    while len(data) < length:
        data += pipes.recv(length - len(data))
    return data


if __name__ == "__main__":
    globals()[sys.argv[1]]()
