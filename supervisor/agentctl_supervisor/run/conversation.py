"""The exchange of messages between an agent and its supervisor, and its records in the log.

A grant is appended to the log before it is sent: that record is the start of the call.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from agentctl_protocol.messages import (
    Ack,
    Ask,
    Beat,
    Bye,
    CallFinished,
    Cancel,
    ChildMessage,
    ErrorMessage,
    Hello,
    Input,
    InputEnd,
    ResultMessage,
    Start,
    SupervisorMessage,
    Verdict,
)
from agentctl_protocol.records import Illegal, InputSent, VerdictRecord, Waiting
from agentctl_protocol.report import Actor
from agentctl_protocol.values import pack_value
from agentctl_supervisor.gate.gate import Gate
from agentctl_supervisor.run.channel import ChannelPump
from agentctl_supervisor.run.launch_pipes import ChannelEnds
from agentctl_supervisor.run.live_log import RunLog

STOPPING: Final = "the run is being stopped"
ENDED: Final = "the agent has ended"


class Conversation:
    """The supervisor's side of one run's channel.

    *on_ask* is called after each ask was judged, *on_said* with each message and verdict that
    was written down, *on_illegal* with the error when the agent breaks the protocol.
    """

    def __init__(
        self,
        ends: ChannelEnds,
        log: RunLog,
        start: Start,
        gate: Gate | None = None,
        *,
        on_ask: Callable[[], None],
        on_said: Callable[[ChildMessage | VerdictRecord], None],
        on_illegal: Callable[[str], None],
    ) -> None:
        self.gate: Final = gate or Gate()
        #: Set when the agent has said bye.
        self.over: Final = trio.Event()
        self._log = log
        self._start = start
        self._greeted = self._broken = False
        #: Set when the agent has said hello, or never will.
        self._settled = trio.Event()
        self._cancel: Cancel | None = None
        self._input_ended = False
        self._on_ask = on_ask
        self._on_said = on_said
        self._on_illegal = on_illegal
        self._channel = ChannelPump(ends, self._heard, self._illegal)

    def __repr__(self) -> str:
        return f"<Conversation {self._channel!r}, {self.gate!r}>"

    @property
    def can_hear(self) -> bool:
        """True if the agent can be asked to end: it has said hello and not yet bye."""
        return self._greeted and not self._broken and not self.over.is_set()

    @property
    def torn_bytes(self) -> int:
        """The number of bytes of a last frame that did not arrive completely."""
        return self._channel.torn_bytes

    async def run(self) -> None:
        """Read and send until the channel ends; cancel it to stop."""
        try:
            await self._channel.run()
        finally:
            self._settled.set()

    async def drain(self) -> int:
        """Read what a dead agent left in the channel; return how many bytes were not read."""
        return await self._channel.drain()

    def close(self) -> None:
        """Close the channel; nothing is sent or read after that."""
        self._channel.close()
        self._settled.set()

    def ask_to_end(self, reason: str, deadline_s: float, detail: str) -> None:
        """Send a cancel.

        An agent that has not said hello yet gets it before it runs its first line.
        """
        self._cancel = Cancel(reason=reason, deadline_s=deadline_s, detail=detail)
        if self._greeted:
            self._channel.send(self._cancel)

    def close_gate(self, because: str) -> None:
        """Grant nothing from now on, and refuse the calls that wait for a person."""
        for verdict in self.gate.close(because):
            self._answer(verdict)

    def decide(
        self, is_meant: Callable[[Waiting], bool], actor: Actor, *, why: str | None
    ) -> list[VerdictRecord | None]:
        """Carry out a person's verdict on the waiting calls for which *is_meant* is true.

        *why* is the reason for a refusal, or None to grant them.  This does not yield to the
        event loop, so no call can begin to wait meanwhile.

        Returns:
            The answer to each call, which may be a refusal if a grant comes too late.  None
            for a call that was refused already, because the answer to an earlier call ended
            the run.
        """
        answered: list[VerdictRecord | None] = []
        for waiting in filter(is_meant, self.gate.waiting):
            verdict = self.gate.decide(waiting.call, actor, why=why)
            answered.append(None if verdict is None else self._answer(verdict))
        return answered

    def acknowledge(self, events: int) -> None:
        """Tell the agent that its first *events* events are on the disk."""
        self._channel.send(Ack(seq=events))

    async def send_input(self, value: object) -> None:
        """Send one item, and wait until the agent has read enough of what was sent before.

        If the agent has not said hello yet, wait for that first.

        Raises:
            LocalProtocolError: *value* cannot be expressed in JSON.
            trio.BrokenResourceError: the agent takes no input, or no more input.
        """
        packed = pack_value(value)
        await self._settled.wait()
        if not self._channel.send(Input(data=packed)):
            raise trio.BrokenResourceError("the agent takes no input")
        self._log.append(InputSent(bytes=len(packed)))
        await self._channel.wait_outbox_below_limit()

    def end_input(self) -> None:
        """Tell the agent that no more input follows."""
        self._input_ended = True
        self._channel.send(InputEnd())

    def _heard(self, message: ChildMessage, raw: bytes) -> None:
        match message:
            case Beat():
                return
            case Ask():
                self._judge(message, raw)
                return
            case Hello():
                self._greeted = True
                self._settled.set()
                # In one write: an agent that gets a cancel together with its start runs no line.
                also: list[SupervisorMessage] = [InputEnd()] if self._input_ended else []
                also += [self._cancel] if self._cancel else []
                if not self._channel.send(self._start, *also) and also:
                    self._channel.send(self._start)  # too long to share a frame
                    self._channel.send(*also)
                if self._channel.is_unanswered:
                    # Otherwise the agent would wait for ever.
                    self._illegal("what it is to do cannot be sent to it")
                    return
            case Bye():
                self.over.set()
        self._log.append_from_child(message, raw)
        if isinstance(message, ResultMessage | ErrorMessage | Bye):
            # Threads that still run in the agent may ask for calls, but no one needs them now.
            self.close_gate(ENDED)
        if isinstance(message, CallFinished):
            self._log.append_estimates(over=False)
        self._on_said(message)

    def _judge(self, ask: Ask, raw: bytes) -> None:
        self._log.append_from_child(ask, raw)
        if self._log.fold.stop is not None:  # perhaps by the intent of another process
            self.close_gate(STOPPING)
        judged = self.gate.judge(ask, self._log.fold.tokens)
        if isinstance(judged, Waiting):
            self._log.append(judged)
        else:
            self._answer(judged)
        self._on_ask()

    def _answer(self, verdict: VerdictRecord) -> VerdictRecord:
        """Write *verdict* down, then send it; return the verdict that was sent."""
        if not self._log.append_verdict(verdict):
            # We were frozen just now, and another process decided to stop the run.
            verdict = msgspec.structs.replace(verdict, verdict="refused", why=STOPPING, actor=None)
            self._log.append_verdict(verdict)
            self.close_gate(STOPPING)
        self._channel.send(Verdict(call=verdict.call, verdict=verdict.verdict, why=verdict.why))
        self._on_said(verdict)
        return verdict

    def _illegal(self, detail: str) -> None:
        self._broken = True
        self._log.append(Illegal(detail=detail))
        self._on_illegal(detail)
