"""The agent's end of the channel: two pipes, a thread that reads, and one that flushes.

* **The reader never sends and never runs the agent's code.** Nothing can therefore prevent it
  from noticing a cancel, a verdict or the end of the channel.
* **Everything is sent in the order in which it was said.** Events are queued. Each sender sends
  the queue first, under one lock. The flusher only sends a queue that no other thread sends.
* **A call of the gate is sent in the thread that makes it**: passing it to another thread would
  cost more than the call.
* **The end of the channel ends the process.** No run continues unsupervised.

Threads are made by `_thread`, so that agents that join all of `threading.enumerate()` do not wait
for ours.
"""

import _thread
import contextlib
import errno
import fcntl
import itertools
import os
import queue
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NoReturn, cast

from agentctl_child.sdk.cancellation import Interruption
from agentctl_child.sdk.inputs import InputQueue
from agentctl_child.sdk.outgoing import Limits, shortened, weight_of
from agentctl_child.sdk.waiting import ThreadWaiter, Waiter
from agentctl_protocol import __version__
from agentctl_protocol.channel import agent_end
from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.messages import (
    PROTOCOL_VERSION,
    Ack,
    Ask,
    Beat,
    Bye,
    CallFinished,
    Cancel,
    ChildMessage,
    Event,
    Events,
    Hello,
    Input,
    InputEnd,
    LogLine,
    Ping,
    Start,
    SupervisorMessage,
    Verdict,
)
from agentctl_protocol.values import open_value

SDK: Final = f"agentctl-child {__version__}"
#: Exit status of an agent whose supervisor is gone (EX_SOFTWARE).
EXIT_UNSUPERVISED: Final = 70
MAX_QUEUED_BYTES: Final = 4 << 20
MAX_QUEUED_EVENTS: Final = 20_000
CALLBACKS_S: Final = 0.1
#: An event that comes later than this after the last send is not kept for a batch.
RARE_S: Final = 0.001
_RECEIVE: Final = 1 << 16
_FIRST_NUMBER: Final = 200


class PendingAsk:
    """An ask that was sent; ``verdict`` is set before its waiter is woken."""

    __slots__ = ("call", "verdict", "waiter")

    def __init__(self, call: str, waiter: Waiter) -> None:
        self.call = call
        self.waiter = waiter
        self.verdict: Verdict | None = None


class Connection:
    """The agent's end of the channel, from hello to bye. Safe to use from any thread."""

    def __init__(self, channel: tuple[int, int], interruption: Interruption) -> None:
        """Take over *channel*: a pipe to read from, and a pipe to write to."""
        self._reads, self._writes = map(_moved_up, channel)
        self.limits = Limits()
        self.inputs = InputQueue(interruption)
        #: Brings a cancel to the agent's code; a mode sets its own function here.
        self.interrupt: Callable[[], None] = interruption.interrupt_main
        #: Counts the turns of the event loop, if there is one.
        self.loop_turns: Callable[[], int] = int
        self._interruption = interruption
        self._token = interruption.token
        # Two channel ends: a refused send restores the old state of its end, and the reader may
        # have changed the other half of that state meanwhile.
        self._outgoing = agent_end()
        self._incoming = agent_end()
        self._start: Start | None = None
        self._started = ThreadWaiter()
        self._send_lock = _thread.allocate_lock()
        self._sender = 0
        self._last_send = 0.0
        self._unsent = b""
        #: Events with their weight, and other messages with the weight 0.
        self._queue: deque[tuple[Event | ChildMessage, int]] = deque()
        self._queued_bytes = 0
        self._events_sent = 0
        self._pending: dict[str, PendingAsk] = {}
        self._call_numbers = itertools.count(1)
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._flusher_idle = True
        self._flusher_runs = False
        self._beats = 0
        self._leaving = False
        self.acknowledged = 0

    def __repr__(self) -> str:
        return (
            f"<Connection {self._outgoing.agent_state}, {self._events_sent} events sent,"
            f" {len(self._queue)} queued, {len(self._pending)} asks pending>"
        )

    # --- the beginning ----------------------------------------------------

    def greet(self) -> None:
        """Say hello and start to read."""
        self.say(Hello(version=PROTOCOL_VERSION, sdk=SDK))
        _start_thread(self._read_forever)

    def wait_for_start(self) -> Start:
        """Return the answer to hello. A cancel that came with it has been processed by then."""
        while self._start is None:
            self._started.wait()
        return self._start

    # --- what goes out ----------------------------------------------------

    def emit(self, event: Event, weight: int) -> None:
        """Report *event*, which takes at most *weight* bytes.

        A rare event is sent at once, because code that holds the interpreter, or a crash, may
        follow. The more events there are, the larger the batches become. A full queue is sent
        here.

        There is no lock and no shield. An append is atomic. The sum of bytes may lose a summand
        between threads, but it only decides when to send.
        """
        self._queue.append((event, weight))
        self._queued_bytes += weight
        is_full = self._queued_bytes > MAX_QUEUED_BYTES or len(self._queue) > MAX_QUEUED_EVENTS
        is_rare = time.monotonic() - self._last_send > RARE_S and not self._send_lock.locked()
        if is_full or is_rare:
            self.say()
        elif self._flusher_idle:
            self._ring()

    def say(self, *messages: ChildMessage) -> None:
        """Send the queue, then *messages*. Blocks while the supervisor does not read."""
        me = _thread.get_ident()
        if self._sender == me:
            # A finalizer or a signal handler of the agent runs in the middle of a frame.
            self._queue.extend((message, 0) for message in messages)
            self._ring()
            return
        with self._interruption.shield, self._send_lock:
            self._sender = me
            try:
                self._send(messages)
            finally:
                self._sender = 0

    def leave(self, *, cancelled: bool) -> None:
        """Send the queue, then bye. Later messages are dropped."""
        self._leaving = True
        self.say(Bye(cancelled=cancelled))

    def _send(self, messages: tuple[ChildMessage, ...]) -> None:
        if self._outgoing.agent_state == "gone":
            self._queue.clear()
            return
        frames = self._frames_of_queue() if self._queue else []
        # One frame for each message: the other end logs the bytes of a frame of one message
        # unchanged.
        for message in messages:
            frames.append(self._outgoing.send(message))
        self._last_send = time.monotonic()
        self._unsent += b"".join(frames)
        try:
            self._send_unsent()
        except OSError as error:
            if error.errno is None:
                raise  # not from the kernel: a TimeoutError that a signal handler raised
            if not self._leaving:
                _end_unsupervised(error)
            self._unsent = b""

    def _send_unsent(self) -> None:
        while self._unsent:
            sent: list[int] = []
            try:
                # A signal handler of the agent may raise while this blocks (an alarm used as a
                # timeout). The number of sent bytes must not be lost then, or the next frame would
                # begin in the middle of this one. No bytecode, and so no handler, runs between the
                # send and the recording of its count.
                sent.extend(map(os.write, (self._writes,), (self._unsent,)))
            finally:
                self._unsent = self._unsent[sum(sent) :]

    def _frames_of_queue(self) -> list[bytes]:
        frames: list[bytes] = []
        batch: list[Event] = []
        bytes_in_batch = bytes_taken = 0
        # Not until the queue is empty: other threads may fill it as fast as this takes from it.
        for _ in range(len(self._queue)):
            item, weight = self._queue.popleft()
            bytes_taken += weight
            is_event = weight > 0
            if batch and (not is_event or bytes_in_batch + weight > self.limits.payload):
                frames.append(self._frame_of(batch))
                batch, bytes_in_batch = [], 0
            if is_event:
                batch.append(cast(Event, item))
                bytes_in_batch += weight
            else:
                frames.append(self._outgoing.send(cast(ChildMessage, item)))
        if batch:
            frames.append(self._frame_of(batch))
        self._queued_bytes = max(0, self._queued_bytes - bytes_taken) if self._queue else 0
        return frames

    def _frame_of(self, batch: list[Event]) -> bytes:
        first = self._events_sent + 1
        self._events_sent += len(batch)
        return self._outgoing.send(Events(first=first, events=batch))

    def _ring(self) -> None:
        self._flusher_idle = False
        if not self._flusher_runs:
            self._flusher_runs = True
            _start_thread(self._flush_forever)
        self._bell.put(None)

    def _flush_forever(self) -> None:
        while True:
            self._bell.get()
            # Before the queue is taken: an event that is queued from here on rings again.
            self._flusher_idle = True
            self.say()

    # --- the gate ---------------------------------------------------------

    def next_call(self) -> str:
        """Return a call id that was not used before."""
        return f"c{next(self._call_numbers)}"

    def ask(self, ask: Ask, waiter: Waiter) -> PendingAsk:
        """Send *ask*; *waiter* is woken by its verdict or by a cancel."""
        if self._sender == _thread.get_ident():
            raise RuntimeError("a finalizer or signal handler of the agent's makes no calls")
        pending = PendingAsk(ask.call, waiter)
        self._pending[ask.call] = pending
        try:
            self.say(ask)
            if self._token.is_cancelled:
                waiter.wake()  # the cancel came before the reader could see this ask
        except BaseException:
            self.abandon(pending)
            raise
        return pending

    def abandon(self, pending: PendingAsk) -> None:
        """Give up waiting for this verdict. If the verdict is a grant, the call ends as cancelled.

        The reader and this method both remove the ask from the table. The one that finds it
        removed was second and reports the cancelled call, so exactly one of them reports it.
        """
        if self._pending.pop(pending.call, None) is None:
            self._finish_unused(pending.verdict)

    def _finish_unused(self, verdict: Verdict | None) -> None:
        if verdict is not None and verdict.verdict == "granted":
            self._queue.append((CallFinished(call=verdict.call, outcome="cancelled"), 0))
            self._ring()

    # --- what comes in ----------------------------------------------------

    def _read_forever(self) -> None:
        try:
            buffer = bytearray(_RECEIVE)
            view = memoryview(buffer)
            is_started = False
            while size := os.readv(self._reads, (buffer,)):
                for message, _ in self._incoming.receive(bytes(view[:size])):
                    self._hear(message)
                # Only after everything that came with the start: a cancel in the same read counts.
                if self._start is not None and not is_started:
                    is_started = True
                    self._started.wake()
        except OSError as error:
            if not self._leaving:
                _end_unsupervised(error)
        except PeerProtocolError:
            pass
        finally:
            if not self._leaving:
                os._exit(EXIT_UNSUPERVISED)

    def _hear(self, message: SupervisorMessage) -> None:
        match message:
            case Verdict():
                self._hear_verdict(message)
            case Cancel():
                self._hear_cancel(message)
            case Input():
                self.inputs.put(open_value(message.data, "input"))
            case InputEnd():
                self.inputs.end()
            case Ack():
                self.acknowledged = message.seq
            case Ping():
                self._beats += 1
                self._queue.append((Beat(thread=self._beats, loop=self.loop_turns()), 0))
                self._ring()
            case Start():
                self.limits = Limits(message.max_frame)
                self._start = message

    def _hear_verdict(self, verdict: Verdict) -> None:
        pending = self._pending.get(verdict.call)
        if pending is not None:
            pending.verdict = verdict
            if self._pending.pop(verdict.call, None) is not None:
                pending.waiter.wake()
                return
        self._finish_unused(verdict)

    def _hear_cancel(self, cancel: Cancel) -> None:
        reason = shortened(cancel.reason, "reason", 256)
        if not self._token.cancel(reason, cancel.detail, cancel.deadline_s):
            return
        for pending in list(self._pending.values()):
            pending.waiter.wake()
        self.inputs.wake()
        if self._token.has_callbacks:
            done = ThreadWaiter()
            _start_thread(lambda: self._run_callbacks(done))
            done.wait(CALLBACKS_S)
        self.interrupt()

    def _run_callbacks(self, done: ThreadWaiter) -> None:
        def failed(error: Exception) -> None:
            text = shortened(f"a cancel callback raised {error!r}", "text", 1000)
            self.emit(LogLine(text=text, level="error"), weight_of(text))

        try:
            self._token.run_callbacks(failed)
        finally:
            done.wake()

    # --- a fork of the agent ----------------------------------------------

    def let_go(self) -> None:
        """Close the descriptors in a forked child of the agent, and never send again."""
        self._leaving = True
        # A thread that does not exist in the child may have held the lock.
        self._send_lock = _thread.allocate_lock()
        for descriptor in (self._reads, self._writes):
            with contextlib.suppress(OSError):  # closed by the agent
                os.close(descriptor)


def _moved_up(descriptor: int) -> int:
    """Return *descriptor* moved to a high number, blocking and close-on-exec.

    An agent that closes all descriptors from 3 on, as daemons do, closes the channel. The next
    file that it opens must not be mistaken for the channel.
    """
    first = min(_FIRST_NUMBER, os.sysconf("SC_OPEN_MAX") // 2)
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, first)
    os.close(descriptor)
    os.set_blocking(moved, True)
    return moved


def _start_thread(function: Callable[[], None]) -> None:
    # Signals are for the main thread: they must break what *it* waits for.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _thread.start_new_thread(function, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_unsupervised(error: OSError) -> NoReturn:
    """End the process: it must not continue if nothing can stop it."""
    if error.errno == errno.EBADF:
        # Caused by os.closerange(3, ...), as daemons do it. Not sys.stderr: its lock may be held.
        with contextlib.suppress(OSError):
            os.write(
                2,
                b"agentctl: the agent's own code closed the channel to its supervisor (descriptors"
                b" 3 and 4), so that no value can be returned and the run ends\n",
            )
    os._exit(EXIT_UNSUPERVISED)
