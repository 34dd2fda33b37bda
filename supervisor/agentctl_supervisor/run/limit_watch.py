"""Ends a run at its limits and by its termination conditions.

The decisions are made by a pure function (`limits.reached`) and a `Judge`.  This module gives
them their input, calls them at the right time, and carries out what they decide.
"""

from collections.abc import Callable
from typing import Final

import trio

from agentctl_protocol.messages import CallFinished, ChildMessage, Events
from agentctl_protocol.records import ConditionsMet, VerdictRecord
from agentctl_protocol.report import Actor, FiredCondition
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor.conditions.composition import Condition, leaves_of
from agentctl_supervisor.conditions.functions import FunctionFailedError, Question
from agentctl_supervisor.conditions.judge import Judge
from agentctl_supervisor.conditions.leaves import ExternalTermination
from agentctl_supervisor.event_loop.worker_threads import run_sync
from agentctl_supervisor.gate.gate import Gate
from agentctl_supervisor.run.limits import Reached, reached
from agentctl_supervisor.run.live_log import RunLog

FUNCTION_WITHIN_S: Final = 5.0
"""The seconds that a `FunctionalTermination` may take; one that takes longer ends the run."""
_MAX_SENTENCES: Final = 5

Stop = Callable[[Result, Reason, str, Actor], None]


class Watch:
    """Watches one run and stops it by a call of *stop*, at most once.

    Call `heard` for each message of the agent and each verdict of the gate, after it was
    written down.  Call `look` for anything else that counts against a limit.
    """

    def __init__(
        self, spec: RunSpec, log: RunLog, gate: Gate, condition: Condition | None, stop: Stop
    ) -> None:
        self._spec = spec
        self._log = log
        self._gate = gate
        self._condition = condition
        self._stop = stop
        self._judge: Judge | None = None
        self._signalled = False
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"<Watch {self._judge or 'of limits only'}>"

    def begin(self) -> None:
        """Begin to watch: the run's time counts from now."""
        if self._condition is not None:
            self._judge = Judge(self._condition, trio.current_time())
            if self._signalled:
                self.signal()

    async def keep_time(self) -> None:
        """End the run at its time limit, and check the conditions that depend on time."""
        async with trio.open_nursery() as nursery:
            if self._spec.time_s is not None:
                nursery.start_soon(self._keep_limit, self._spec.time_s)
            if self._judge is not None:
                nursery.start_soon(self._keep_deadlines, self._judge)
                if self._judge.asks_functions:
                    nursery.start_soon(self._ask_functions, self._judge)

    def look(self) -> None:
        """End the run if it has reached a limit.  Call it after a record was written."""
        log = self._log
        if log.fold.stop is None and (
            limit := reached(self._spec, self._gate, log.child_bytes, log.fold.tokens)
        ):
            self.reach(limit)

    def heard(self, message: ChildMessage | VerdictRecord) -> None:
        """End the run if *message*, which was written down, fulfils a condition or limit."""
        judge = self._judge
        if judge is not None and self._log.fold.stop is None:
            fired: tuple[FiredCondition, ...] = ()
            match message:
                case Events():
                    fired = judge.feed_all(message.events, trio.current_time())
                case VerdictRecord() | CallFinished():
                    fired = judge.feed(message, trio.current_time())
            self._conclude(fired)
            self._changed.set()
        self.look()

    def signal(self) -> bool:
        """Fire the ``external()`` condition; return True if there is one that waits.

        A signal before the run has begun is remembered.
        """
        if self._judge is None:
            self._signalled = self._condition is not None and any(
                isinstance(leaf, ExternalTermination) for leaf in leaves_of(self._condition)
            )
            return self._signalled
        if not self._judge.waits_for_signal:
            return False
        self._conclude(self._judge.signal(trio.current_time()))
        return True

    def reach(self, limit: Reached) -> None:
        """End the run at *limit*."""
        actor = Actor(kind="limit", id=limit.reason.value)
        self._stop(Result.LIMIT, limit.reason, limit.detail, actor)

    def _conclude(self, fired: tuple[FiredCondition, ...]) -> None:
        if not fired:
            return
        met = ConditionsMet(fired)
        if not self._log.decide(met):  # there is a stop already, perhaps by another process
            return
        sentences = [f.sentence for f in fired]
        more = len(sentences) - _MAX_SENTENCES
        detail = "; ".join(sentences[:_MAX_SENTENCES]) + (f"; {more} more" if more > 0 else "")
        actor = Actor(kind="condition", id=fired[0].condition)
        self._stop(Result.TERMINATED, Reason.CONDITION, detail, actor)

    async def _keep_limit(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.reach(Reached(Reason.TIME, f"time limit of {seconds:g} s"))

    async def _keep_deadlines(self, judge: Judge) -> None:
        while (deadline := judge.next_deadline()) is not None:
            await trio.sleep_until(deadline)
            self._conclude(judge.tick(trio.current_time()))

    async def _ask_functions(self, judge: Judge) -> None:
        """Call the functions among the conditions, each on a thread, one call at a time."""
        async with trio.open_nursery() as nursery:
            while not judge.fired:
                self._changed = trio.Event()
                for question in judge.questions():
                    nursery.start_soon(self._ask, judge, question)
                await self._changed.wait()

    async def _ask(self, judge: Judge, question: Question) -> None:
        try:
            with trio.fail_after(FUNCTION_WITHIN_S):
                met = await _on_a_thread(question)
        except trio.TooSlowError:
            late = f"no answer in {FUNCTION_WITHIN_S:g} s"
            self._conclude(judge.failed(question, late, trio.current_time()))
        except FunctionFailedError as error:
            self._conclude(judge.failed(question, str(error), trio.current_time()))
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything
            told = f"{type(error).__name__}: {error}"
            self._conclude(judge.failed(question, told, trio.current_time()))
        else:
            self._conclude(judge.answered(question, trio.current_time(), met=met))
        self._changed.set()


async def _on_a_thread(question: Question) -> bool:
    has_begun = False

    def answer() -> bool:
        nonlocal has_begun
        has_begun = True
        return question.answer()

    try:
        # Not from the limiter that all tasks share: a thread that hangs is never given back.
        return await trio.to_thread.run_sync(
            answer, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
        )
    except RuntimeError:
        if has_begun:
            raise
    # Another run has used up all threads; that must not end this run.
    return await run_sync("conditions", answer, abandon_on_cancel=True)
