"""Carries out the stop ladder of one run: the shell around `ladder.decide`.

It writes each rung to the log before it takes the rung, sends messages and signals, counts the
processes that are alive, and informs listeners.  It decides nothing.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import trio

from agentctl_protocol.control import Step
from agentctl_protocol.records import Answered, RungRecord, SupervisorRecord
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.filesystem.writable_roots import roots_of
from agentctl_supervisor.processes.open_files import OpenFiles, open_for_writing
from agentctl_supervisor.processes.process_tree import Census, census
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.spawner.keepers import Keepers
from agentctl_supervisor.stop.ladder import (
    Action,
    CallAsked,
    GiveUp,
    Happened,
    Ladder,
    Note,
    StopWanted,
    Take,
    TimePassed,
    decide,
)

_STEPS_WAITING: Final = 64
"""The steps that a listener may be behind: more than any ladder has."""

_WARDEN_SLACK_S: Final = 0.1
"""The seconds by which the warden's own timer is later than ours: it acts if we are frozen."""


class StopLog(Protocol):
    """The part of a live run's log that a stop needs."""

    @property
    def fold(self) -> Fold:
        """The state that the log gives so far."""
        ...

    @property
    def closed(self) -> bool:
        """True if its last record is written."""
        ...

    def append(self, body: SupervisorRecord) -> None:
        """Write down a fact before it is acted upon."""
        ...


class Climb:
    """The execution of one run's ladder.

    *ask_to_end* takes a reason code, the grace in seconds and a sentence for people.  *gave_up*
    is called when SIGKILL did not empty the tree in time.

    ``seen`` has all processes that were alive at a rung; if ``is_all_seen`` is False, there were
    more.  ``killed`` is how many were alive when SIGKILL was sent.
    """

    def __init__(
        self,
        log: StopLog,
        keepers: Keepers,
        ask_to_end: Callable[[str, float, str], None],
        gave_up: Callable[[], None],
    ) -> None:
        self.seen: Final[set[ProcessIdentity]] = set()
        self.is_all_seen = True
        self.killed = 0
        self._log = log
        self._keepers = keepers
        self._ask_to_end = ask_to_end
        self._gave_up = gave_up
        self._ladder = Ladder()
        self._moved = trio.Event()
        self._requested_at = math.inf
        created = log.fold.created
        self._writable = roots_of(created.workspace if created else "", log.fold.spec)
        self._listeners: set[trio.MemorySendChannel[Step]] = set()

    def __repr__(self) -> str:
        return f"<Climb {self._ladder.rung}, {len(self.seen)} processes seen>"

    @property
    def rung(self) -> Rung | None:
        """The last rung that was taken."""
        return self._ladder.rung

    @property
    def begun(self) -> bool:
        """True if a stop was requested."""
        return self._ladder.rung is not None

    async def keep_time(self) -> None:
        """Take each rung when the time of the previous one is over.  Runs until cancelled."""
        while True:
            with trio.move_on_at(self._ladder.until):
                await self._moved.wait()
            self._moved = trio.Event()
            self.happen(TimePassed())

    def happen(self, happened: Happened) -> None:
        """Carry out what the ladder decides on *happened*.  Never waits."""
        if isinstance(happened, StopWanted) and self._keepers.root_is_dead:
            # The run is already ending: there is no process left to ask or to signal.
            return
        self._ladder, actions = decide(self._ladder, happened, trio.current_time())
        for action in actions:
            self._perform(action)
        if actions:
            self._moved.set()

    def call_asked(self) -> None:
        """Tell the ladder that the agent asked for a call."""
        self.happen(CallAsked(trio.current_time() - self._requested_at))

    def look(self) -> Census:
        """Return the run's processes that are alive now, and add them to ``seen``.

        Takes 50 ms at most: a signal must not wait until thousands are counted.
        """
        contained = self._log.fold.contained
        found = Census((), complete=True) if contained is None else census(contained)
        self.seen.update(found.alive)
        self.is_all_seen &= found.complete
        return found

    def left(self) -> Sequence[ProcessIdentity]:
        """Return the processes that are left after the end of the tree, as `look` finds them."""
        # A process that is still visible in a namespace whose init is dead is dying.
        return () if self._keepers.namespace_is_empty else self.look().alive

    @contextlib.contextmanager
    def listen(self) -> Iterator[trio.MemoryReceiveChannel[Step]]:
        """Return the steps that are taken from now on; they end with `finish`."""
        send, receive = trio.open_memory_channel[Step](_STEPS_WAITING)
        with send, receive:
            if self._log.closed:
                send.close()
            self._listeners.add(send)
            try:
                yield receive
            finally:
                self._listeners.discard(send)

    def finish(self) -> None:
        """Tell the listeners that no more step follows."""
        for listener in self._listeners:
            listener.close()

    def _perform(self, action: Action) -> None:
        match action:
            case Take(rung=rung, left_s=left_s):
                found = self.look()
                alive = len(found.alive)
                files = OpenFiles()
                if rung is Rung.SIGKILL:
                    # Before the kill, because dead processes have no descriptors.
                    files = open_for_writing(found.alive, self._writable)
                self._log.append(
                    RungRecord(
                        step=rung,
                        processes=alive,
                        open_files=files.paths,
                        open_unread=files.unread,
                        at_least=not found.complete,
                    )
                )
                self._tell(
                    Step(step=rung, processes=alive, left_s=left_s, at_least=not found.complete)
                )
                self._take(rung, left_s, alive)
            case Note(rung=rung, how=how):
                self._log.append(Answered(step=rung, how=how))
                self._tell(Step(answered=how))
            case GiveUp():
                self._gave_up()

    def _take(self, rung: Rung, left_s: float, alive: int) -> None:
        match rung:
            case Rung.ASKED:
                stop = self._log.fold.stop
                reason, detail = ("user", "") if stop is None else (stop.reason.value, stop.detail)
                self._ask_to_end(reason, left_s, detail)
                self._requested_at = trio.current_time()
                # If we are frozen from here on, the warden kills the run.
                self._keepers.limit_life(left_s + self._ladder.term_grace_s + _WARDEN_SLACK_S)
            case Rung.SIGTERM:
                self._keepers.terminate()
            case Rung.SIGKILL:
                self.killed = alive
                self._keepers.kill()

    def _tell(self, step: Step) -> None:
        for listener in self._listeners:
            with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError):
                # A listener must not delay a stop.
                listener.send_nowait(step)
