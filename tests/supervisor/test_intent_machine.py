"""Somebody else decides to stop a run, at any moment of its log: there is one stop, and it holds.

The real log, gate and conversation of a run, without its processes: what the agent says comes
from the machine.  That its supervisor was frozen is an earlier look at the intent's place.
"""

import shutil
import tempfile

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from agentctl_protocol.messages import (
    Ask,
    CallFinished,
    ChildMessage,
    Events,
    Hello,
    Ready,
    ResultMessage,
    Start,
    Text,
)
from agentctl_protocol.records import Created, End, Exit, Output, Record, Stop, VerdictRecord
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor.processes.process_tree import boot_id
from agentctl_supervisor.recover.recovery import recover
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.run.conversation import STOPPING, Conversation
from agentctl_supervisor.run.launch_pipes import ChannelEnds
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_testkit.channel import channel_pair

FUNCTION = RunSpec(target="module:function")
OURS = Stop(Result.STOPPED, Reason.CLIENT, "ours", Actor("supervisor", ""), 5.0, 2.0)
THEIRS = Stop(Result.STOPPED, Reason.USER, "theirs", Actor("uid", "0"), 0.0, 2.0)
#: Nobody has this number and start time: the supervisor of these runs is always dead.
NOBODY = ProcessIdentity(1 << 22, 1)
FROZEN_NS = 1_000_000_000


class Stopping(RuleBasedStateMachine):
    """One run until its end, by its own doing, by ours, or by the death of its supervisor."""

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp(prefix="agentctl-intent-")
        self.home = Home.open({"AGENTCTL_HOME": self.path}, create=True)
        self.directory = self.home.create_run(FUNCTION)
        self.log = RunLog(self.directory, FUNCTION)
        self.log.append(Created(supervisor=NOBODY, boot_id=boot_id()))
        self.our_end, self.agents_end = channel_pair()
        self.conversation = Conversation(
            ChannelEnds(*self.our_end.descriptors),
            self.log,
            Start(run=self.directory.id),
            on_ask=_no,
            on_said=_no,
            on_illegal=_no,
        )
        self.agent_says(Hello(version=1))
        self.agent_says(Ready())
        self.events = self.calls = 0
        #: What the outcome has to be, from the first thing on that decided it.
        self.due: Result | None = None
        #: No grant may have this number or a higher one.
        self.no_grant_from: int | None = None
        self.will_die = False

    @initialize(will_die=st.booleans())
    def it_will_end(self, will_die: bool) -> None:
        """By its exit, or by the death of its supervisor."""
        self.will_die = will_die

    def teardown(self) -> None:
        try:
            if self.will_die:
                self.decided(Result.LOST)
                self.check(self.its_supervisor_dies())
            else:
                self.decided(Result.FAILED)
                self.check(self.it_exits())
        finally:
            self.our_end.close()
            self.agents_end.close()
            shutil.rmtree(self.path)

    def agent_says(self, message: ChildMessage) -> None:
        """It arrives at the supervisor."""
        self.conversation._heard(message, msgspec.msgpack.encode(message))

    def decided(self, result: Result) -> None:
        """Only the first word counts."""
        self.due = self.due or result

    def nothing_is_granted_from_now_on(self) -> None:
        if self.no_grant_from is None:
            self.no_grant_from = self.log._writer.next_seq

    # --- what happens to the run ---------------------------------------------

    @rule(what=st.sampled_from(["reports", "asks", "asks", "has called", "writes", "returns"]))
    def agent_works(self, what: str) -> None:
        """One rule for all of it, so that stops are not rare."""
        match what:
            case "reports":
                self.events += 1
                self.agent_says(Events(first=self.events, events=[Text("x")]))
            case "asks":
                self.calls += 1
                self.agent_says(Ask(call=str(self.calls), kind="tool", name="ls"))
            case "has called":
                self.agent_says(CallFinished(call=str(self.calls or 1)))
            case "writes":
                self.log.append_output(Output("stdout", b"x"))
            case "returns":
                self.agent_says(ResultMessage(pack_value(self.calls)))
                self.decided(Result.SUCCEEDED)

    @rule()
    def supervisor_stops_it(self) -> None:
        """As `Run.request_stop` does it."""
        self.nothing_is_granted_from_now_on()
        if self.log.fold.stop is None:
            self.log.decide(OURS)
        self.conversation.gate.close(STOPPING)
        self.decided(Result.STOPPED)

    @rule()
    def somebody_else_stops_it(self) -> None:
        """Only after a supervisor was silent for half a second may an intent be written."""
        self.log._looked_ns -= FROZEN_NS
        if RunDirectory(self.directory.path).write_intent(THEIRS):
            self.nothing_is_granted_from_now_on()
            self.decided(Result.STOPPED)

    # --- how it ends ----------------------------------------------------------

    def it_exits(self) -> Report:
        """As `Run` concludes it."""
        self.log.decide(Exit(code=1))
        self.log.decide(End())
        report = self.log.report()
        self.log.end()
        self.log.close()
        self.directory.write_report(report)
        self.directory.unlock()
        return report

    def its_supervisor_dies(self) -> Report:
        """And somebody who looks finishes its work."""
        self.log.close()
        self.directory.unlock()
        return recover(RunDirectory(self.directory.path))

    # --- what holds ------------------------------------------------------------

    def records(self) -> list[Record]:
        """All that is in the log."""
        return list(LogReader(self.directory.path, self.directory.id))

    @invariant()
    def the_log_means_what_the_supervisor_thinks(self) -> None:
        """Its own fold is that of a reader, at every moment; nothing was granted in between."""
        fold = Fold(self.directory.id, FUNCTION)
        stops = 0
        for record in self.records():
            fold.apply(record)
            match record.body:
                case Stop():
                    stops += 1
                case VerdictRecord(verdict="granted"):
                    assert stops == 0
                    assert self.no_grant_from is None or record.seq < self.no_grant_from
        assert stops <= 1
        assert fold.report() == self.log.fold.report()

    def check(self, report: Report) -> None:
        """The outcome is the first word, by one stop if it was one; a reader says the same."""
        assert report.finished
        assert report.result is self.due
        stops = [record.body for record in self.records() if isinstance(record.body, Stop)]
        if self.due is Result.STOPPED:
            assert len(stops) == 1
        fold = Fold(self.directory.id, FUNCTION)
        for record in self.records():
            fold.apply(record)
        assert fold.report(log_bytes=report.log.bytes) == report
        assert recover(RunDirectory(self.directory.path)).result is self.due


def _no(*_arguments: object) -> None:
    """Nobody is told."""


def test_an_intent_at_any_moment_gives_exactly_one_stop() -> None:
    """Whoever decides first decides, once; after a stop nothing is granted, whoever made it."""
    run_state_machine_as_test(Stopping, settings=settings(max_examples=60, stateful_step_count=8))
