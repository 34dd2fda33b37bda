"""From a log to its report: who decides, what is kept, and what is said in a sentence."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl_protocol.messages import (
    Artifact,
    CallFinished,
    Checkpoint,
    ErrorMessage,
    Event,
    Events,
    Hello,
    LogLine,
    Message,
    Progress,
    Ready,
    ResultMessage,
    Text,
    Usage,
)
from agentctl_protocol.records import (
    Answered,
    Created,
    End,
    Exit,
    Illegal,
    Lost,
    Output,
    Record,
    RecordBody,
    RefusedRecord,
    RungRecord,
    Started,
    Stop,
    VerdictRecord,
)
from agentctl_protocol.report import Actor, Processes, Report, Survivor, UsageTotal
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import By, Reason, Result, Rung, State
from agentctl_supervisor.report.call_history import MAX_CALLS, MAX_VALUE_BYTES
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.text_tail import MAX_TEXT

PROGRAM = RunSpec(argv=("/bin/true",))
FUNCTION = RunSpec(target="module:function")
CREATED = Created(supervisor=ProcessIdentity(1, 1), boot_id="boot")
STARTED = Started(layers=("pid namespace",))
VALUE = ResultMessage(value=pack_value({"answer": 42}))
ERROR = ErrorMessage(kind="ValueError", text="no good", traceback="Traceback ...\nValueError")
STOP = Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 5.0, 2.0)
LIMIT = Stop(Result.LIMIT, Reason.TIME, "time limit of 2 s", Actor("limit", "time"), 5.0, 2.0)
END = End(processes=Processes(seen=3, killed=2))
SECOND = 1_000_000_000
BEGAN = 1_800_000_000 * SECOND

CHILD = (Hello, Ready, Events, CallFinished, ResultMessage, ErrorMessage)


def records(bodies: Sequence[RecordBody], step_ns: int = SECOND) -> Iterator[Record]:
    """*bodies* as they would be in a log, one a second."""
    seq = 1
    for n, body in enumerate(bodies):
        by = By.CHILD if isinstance(body, CHILD) else By.SUPERVISOR
        yield Record(seq, BEGAN + n * step_ns, by, body)
        seq += len(body.events) if isinstance(body, Events) else 1


def fold(*bodies: RecordBody, spec: RunSpec = PROGRAM) -> Fold:
    folded = Fold("r-testtest", spec)
    for record in records(bodies):
        folded.apply(record)
    return folded


def report(*bodies: RecordBody, spec: RunSpec = PROGRAM) -> Report:
    return fold(CREATED, STARTED, *bodies, spec=spec).report()


def events(*items: Event) -> Events:
    return Events(first=1, events=list(items))


def grant(call: str, kind: str = "tool", name: str = "shell", args: object = None) -> VerdictRecord:
    assert kind in ("tool", "model")
    return VerdictRecord(call, kind, name, "granted", args=pack_value(args))  # type: ignore[arg-type]


# --- one run, one outcome (P5) ----------------------------------------------


@pytest.mark.parametrize(
    ("spec", "bodies", "result", "reason", "detail"),
    [
        (PROGRAM, [Exit(code=0), END], Result.SUCCEEDED, None, "exit code 0"),
        (PROGRAM, [Exit(code=3), END], Result.FAILED, Reason.EXIT, "exit code 3"),
        (PROGRAM, [Exit(signal=11), END], Result.FAILED, Reason.SIGNAL, "killed by SIGSEGV"),
        (PROGRAM, [Exit(signal=63), END], Result.FAILED, Reason.SIGNAL, "killed by signal 63"),
        # A program's own result message is no more than something that it said.
        (PROGRAM, [VALUE, Exit(code=3), END], Result.FAILED, Reason.EXIT, "exit code 3"),
        (FUNCTION, [VALUE, Exit(code=0), END], Result.SUCCEEDED, None, "it returned a value"),
        (FUNCTION, [VALUE, Exit(code=1), END], Result.SUCCEEDED, None, "it returned a value"),
        (FUNCTION, [VALUE, STOP, END], Result.SUCCEEDED, None, "it returned a value"),
        (FUNCTION, [VALUE, Lost(""), END], Result.SUCCEEDED, None, "it returned a value"),
        (
            FUNCTION,
            [ERROR, Exit(code=1), END],
            Result.FAILED,
            Reason.EXCEPTION,
            "ValueError: no good",
        ),
        (
            FUNCTION,
            [ErrorMessage(kind="ModuleNotFoundError", text="no module x", loading=True), END],
            Result.REFUSED,
            Reason.NOT_FOUND,
            "ModuleNotFoundError: no module x",
        ),
        (
            FUNCTION,
            [ErrorMessage(kind="ModuleNotFoundError", traceback="Tr", loading=True), END],
            Result.FAILED,
            Reason.EXCEPTION,
            "ModuleNotFoundError",
        ),
        (
            FUNCTION,
            [Exit(code=0), END],
            Result.FAILED,
            Reason.EXIT,
            "exit code 0 before it returned a value",
        ),
        (
            FUNCTION,
            [Exit(signal=9), END],
            Result.FAILED,
            Reason.SIGNAL,
            "killed by SIGKILL before it returned a value",
        ),
        (
            FUNCTION,
            [Illegal("bad frame"), Exit(code=1), END],
            Result.FAILED,
            Reason.PROTOCOL,
            "bad frame",
        ),
        (
            PROGRAM,
            [Illegal("bad frame"), Exit(code=0), END],
            Result.FAILED,
            Reason.PROTOCOL,
            "bad frame",
        ),
        (
            FUNCTION,
            [VALUE, Illegal("bad frame"), END],
            Result.SUCCEEDED,
            None,
            "it returned a value",
        ),
        (
            PROGRAM,
            [Lost("its supervisor died"), END],
            Result.LOST,
            Reason.SUPERVISOR_DIED,
            "its supervisor died",
        ),
        (PROGRAM, [Lost("x"), Exit(code=0), END], Result.LOST, Reason.SUPERVISOR_DIED, "x"),
        (
            PROGRAM,
            [Exit(), END],
            Result.LOST,
            Reason.SUPERVISOR_DIED,
            "how the agent ended is not known",
        ),
        (PROGRAM, [END], Result.LOST, Reason.SUPERVISOR_DIED, "how the agent ended is not known"),
        (PROGRAM, [LIMIT, END], Result.LIMIT, Reason.TIME, "time limit of 2 s"),
        (PROGRAM, [Exit(code=0), LIMIT, END], Result.SUCCEEDED, None, "exit code 0"),
        (
            PROGRAM,
            [RefusedRecord(Reason.NOT_FOUND, "no such program: x", "check PATH")],
            Result.REFUSED,
            Reason.NOT_FOUND,
            "no such program: x: check PATH",
        ),
    ],
)
def test_the_log_decides_what_became_of_a_run(
    spec: RunSpec, bodies: list[RecordBody], result: Result, reason: Reason | None, detail: str
) -> None:
    """By its order, once, and in one sentence."""
    told = report(*bodies, spec=spec)
    assert (told.state, told.result, told.reason) == (State.FINISHED, result, reason)
    assert told.detail == detail


@pytest.mark.parametrize("spec", [PROGRAM, FUNCTION])
@pytest.mark.parametrize(
    "order", list(itertools.permutations([VALUE, Exit(code=0), STOP, Lost("gone")], 4))
)
def test_the_first_that_settles_it_does(spec: RunSpec, order: Sequence[RecordBody]) -> None:
    """Whatever follows, and in whatever order, changes nothing of result, reason and actor."""
    first = type(next(b for b in order if not (b is VALUE and spec is PROGRAM)))
    by_exit = Result.SUCCEEDED if spec is PROGRAM else Result.FAILED
    expected = {
        ResultMessage: Result.SUCCEEDED,
        Stop: Result.STOPPED,
        Lost: Result.LOST,
        Exit: by_exit,
    }[first]
    folded = fold(CREATED, STARTED, *order, END, spec=spec)
    assert folded.report().result is expected
    assert folded.report().value == {"answer": 42}
    assert folded.complete is (expected in (Result.SUCCEEDED, Result.FAILED))


def test_a_value_after_the_stop_is_kept_and_the_run_stays_stopped() -> None:
    """Finished work is not thrown away, and the stop is not undone."""
    told = report(STOP, VALUE, Exit(code=0), END, spec=FUNCTION)
    assert (told.result, told.value, told.actor) == (Result.STOPPED, {"answer": 42}, STOP.actor)


def test_two_stops_are_one() -> None:
    """The first counts."""
    other = msgspec.structs.replace(STOP, actor=Actor("uid", "1000"))
    assert fold(CREATED, STOP, other).stop is STOP


@pytest.mark.parametrize(
    ("stop", "steps", "said"),
    [
        (
            STOP,
            [(Rung.ASKED, "yes")],
            "stopped by uid 0 (root) after 1.0 s: it ended when it was asked to",
        ),
        (
            STOP,
            [(Rung.ASKED, "no"), (Rung.SIGTERM, "yes")],
            "stopped by uid 0 (root) after 1.0 s: it ended on SIGTERM",
        ),
        (
            STOP,
            [(Rung.ASKED, "no"), (Rung.SIGTERM, "no"), (Rung.SIGKILL, "yes")],
            (
                "stopped by uid 0 (root) after 1.0 s:"
                " it ignored the request and SIGTERM and was killed"
            ),
        ),
        (
            STOP,
            [(Rung.ASKED, "no channel"), (Rung.SIGTERM, "no"), (Rung.SIGKILL, "yes")],
            "stopped by uid 0 (root) after 1.0 s: it ignored SIGTERM and was killed",
        ),
        (
            msgspec.structs.replace(
                STOP, kill=True, actor=Actor("client", "web"), detail="too slow"
            ),
            [(Rung.SIGKILL, "yes")],
            "killed by client web after 1.0 s (too slow): it was killed",
        ),
        (
            LIMIT,
            [(Rung.ASKED, "no"), (Rung.SIGTERM, "yes")],
            "time limit of 2 s: it ended on SIGTERM",
        ),
    ],
)
def test_a_stop_is_told_in_one_sentence(
    stop: Stop, steps: list[tuple[Rung, str]], said: str
) -> None:
    """Who, when, and how the agent answered."""
    ladder: list[RecordBody] = []
    for rung, how in steps:
        ladder += [RungRecord(rung, 3), Answered(rung, how)]
    told = report(stop, *ladder, END)
    assert told.detail == said
    assert [(step.step, step.answered) for step in told.ladder] == steps


def test_a_run_that_was_stopped_before_it_began_was_not_killed() -> None:
    """Nothing ended on a signal that had not begun: 143, as for one that obeyed."""
    steps = (RungRecord(Rung.SIGTERM, 0), Answered(Rung.SIGTERM, "yes"))
    never_began = RefusedRecord(Reason.SANDBOX, "it was stopped before it began")
    stop = msgspec.structs.replace(STOP, reason=Reason.SUPERVISOR_EXIT)
    told = fold(CREATED, stop, *steps, never_began, END).report()
    assert told.result is Result.STOPPED
    assert told.detail == "stopped by uid 0 (root): before it began"
    assert told.process_exit_code == 143


def test_survivors_are_in_the_sentence_and_in_the_list() -> None:
    """A stop that did not work says so."""
    end = End(processes=Processes(3, 2, 1), survivors=(Survivor(77, "stuck"),))
    told = report(STOP, RungRecord(Rung.SIGKILL, 3), end)
    assert "1 of its processes survive" in told.detail
    assert told.survivor_list == end.survivors


def test_a_detail_from_the_child_is_one_bounded_line() -> None:
    """What an exception says can be long and have many lines."""
    told = report(ErrorMessage(kind="E", text="a\nb\r\n" * 10_000), END, spec=FUNCTION)
    assert told.detail.startswith("E: a b a b")
    assert len(told.detail) < 1100


# --- states -----------------------------------------------------------------


def test_states_follow_the_log() -> None:
    """Before the end there is no result."""
    folded = Fold("r-testtest", PROGRAM)
    seen = [folded.report().state]
    for record in records([CREATED, STARTED, STOP, Exit(code=0), END]):
        folded.apply(record)
        seen.append(folded.report().state)
        assert (folded.report().result is not None) == folded.ended
    assert seen == [
        State.STARTING,
        State.STARTING,
        State.RUNNING,
        State.STOPPING,
        State.STOPPING,
        State.FINISHED,
    ]


def test_times_are_those_of_the_log() -> None:
    """Created, started, ended; how long it ran is from its start."""
    told = report(Exit(code=0), END)
    assert told.created_at == datetime.fromtimestamp(BEGAN / 1e9, UTC)
    assert told.started_at == datetime.fromtimestamp(BEGAN / 1e9 + 1, UTC)
    assert told.ended_at == datetime.fromtimestamp(BEGAN / 1e9 + 3, UTC)
    assert told.duration_s == 2.0


def test_a_lost_run_has_no_duration() -> None:
    """When it was found says nothing about how long it took."""
    assert report(Lost("x"), END).duration_s is None


def test_a_clock_that_was_set_back_gives_no_negative_duration() -> None:
    """Wall time may jump."""
    folded = Fold("r-testtest", PROGRAM)
    for record in records([CREATED, STARTED, STOP, END], step_ns=-SECOND):
        folded.apply(record)
    assert folded.report().duration_s == 0
    assert "after 0.0 s" in folded.report().detail


# --- calls ------------------------------------------------------------------


def test_a_finished_call_has_its_result() -> None:
    """With what was asked, and how long it took."""
    finished = CallFinished("c1", "ok", pack_value([1, 2]))
    (call,) = report(grant("c1", args={"cmd": "ls"}), finished, END).calls
    assert (call.id, call.kind, call.name, call.outcome) == ("c1", "tool", "shell", "ok")
    assert (call.args, call.result, call.duration_s) == ({"cmd": "ls"}, [1, 2], 1.0)


def test_an_open_call_of_an_ended_run_is_interrupted() -> None:
    """With an answer made by us, so that the chat it stands in stays valid."""
    folded = fold(CREATED, STARTED, grant("c1"))
    assert folded.open_calls == ("c1",)
    assert folded.report().calls[0].outcome == "open"
    (call,) = report(grant("c1"), STOP, END).calls
    assert call.outcome == "interrupted"
    assert call.result == {"error": call.error}
    assert "interrupted" in call.error
    assert "side effect unknown" in call.error


def test_calls_keep_the_order_of_their_grants() -> None:
    """Whichever finishes first."""
    told = report(grant("a"), grant("b"), grant("c"), CallFinished("b"), CallFinished("a"), END)
    assert [call.id for call in told.calls] == ["a", "b", "c"]


def test_refused_and_unasked_calls_are_no_calls() -> None:
    """Only the gate's grant begins one."""
    refused = VerdictRecord("c1", "tool", "rm", "refused", "policy")
    assert report(refused, CallFinished("c1"), CallFinished("c2"), END).calls == ()


def test_the_list_of_calls_is_bounded_and_says_so() -> None:
    """The last ones are kept, and every open one."""
    bodies: list[RecordBody] = [grant("open")]
    for n in range(MAX_CALLS + 50):
        bodies += [grant(f"c{n}"), CallFinished(f"c{n}")]
    told = report(*bodies, END)
    assert len(told.calls) == MAX_CALLS + 1
    assert told.calls_left_out == 50
    assert (told.calls[0].id, told.calls[-1].id) == ("open", f"c{MAX_CALLS + 49}")


def test_the_values_of_calls_are_bounded() -> None:
    """Large ones are left in the log; the call itself is still told."""
    big = "x" * 500_000
    bodies: list[RecordBody] = []
    for n in range(40):
        bodies += [grant(f"c{n}", args=big), CallFinished(f"c{n}", "ok", pack_value(big))]
    told = report(*bodies, END)
    assert len(told.calls) == 40
    kept = sum(len(value) for call in told.calls for value in (call.args, call.result))
    assert kept < MAX_VALUE_BYTES + 40 * 100
    assert told.calls[-1].result == big
    assert "in the log" in told.calls[0].args


# --- usage ------------------------------------------------------------------


def test_running_totals_of_a_call_count_once() -> None:
    """The last word on a call is what it used; what belongs to no call is added up."""
    told = report(
        grant("c1", "model", "m"),
        events(Usage("m", "c1", 10, 1, "partial"), Usage("m", "c1", 10, 7)),
        CallFinished("c1"),
        events(Usage("m", "", 1, 2), Usage("other", "", 5, 5, "estimated")),
        END,
    )
    assert told.usage == {
        "m": UsageTotal(11, 9, "reported"),
        "other": UsageTotal(5, 5, "estimated"),
    }


def test_the_quality_is_that_of_the_least_certain_part() -> None:
    """One estimate makes the sum an estimate."""
    told = report(events(Usage("m", "", 1, 1), Usage("m", "", 1, 1, "estimated")), END)
    assert told.usage["m"] == UsageTotal(2, 2, "estimated")


@pytest.mark.parametrize("cut", [[], [CallFinished("c1", "cancelled")]])
def test_a_model_call_cut_short_is_never_counted_as_nothing(cut: list[RecordBody]) -> None:
    """Interrupted or cancelled: what it used is unknown, or only a part of it is known."""
    unknown = report(grant("c1", "model", "m"), *cut, STOP, END)
    assert unknown.usage["m"].quality == "unknown"
    partial = report(grant("c1", "model", "m"), events(Usage("m", "c1", 10, 3)), *cut, STOP, END)
    assert partial.usage["m"] == UsageTotal(10, 3, "partial")


def test_a_million_models_are_not_a_million_lines() -> None:
    """Names come from the child, and are bounded in number and length."""
    many = events(*(Usage(f"model {n}" + "x" * 1000, "", 1, 0) for n in range(1000)))
    usage = report(many, END).usage
    assert len(usage) <= 257
    assert sum(total.prompt_tokens for total in usage.values()) == 1000
    assert max(map(len, usage)) <= 256


# --- text, checkpoints, values ----------------------------------------------


def test_partial_text_is_what_follows_the_last_whole_message() -> None:
    """Text that became a message is not told twice."""
    told = report(
        events(Text("lost "), Message("lost in a message"), Text("Hel")),
        events(Progress(1, 2), Text("lo"), LogLine("noise")),
        END,
    )
    assert told.partial_text == "Hello"
    assert told.log.events == 6


def test_partial_text_keeps_its_end() -> None:
    """However much an agent talks, the last part is kept and memory stays bounded."""
    pieces = [events(*(Text(f"{n:07}{m:03}" * 10) for m in range(100))) for n in range(300)]
    text = report(*pieces, END).partial_text
    assert len(text) == MAX_TEXT
    assert text.endswith("0000299099" * 10)


def test_the_last_checkpoint_counts() -> None:
    """It is the state from which the agent could go on."""
    told = report(
        events(Checkpoint(pack_value({"step": 1})), Checkpoint(pack_value({"step": 2}))), END
    )
    assert told.checkpoint == {"step": 2}


def test_values_that_are_none_are_said_and_break_nothing() -> None:
    """The child's bytes are opened with suspicion."""
    bad = msgspec.Raw(b"\xc1")
    deep = msgspec.Raw(b"\x91" * 50_000 + b"\xc0")
    told = report(
        events(Checkpoint(deep)),
        VerdictRecord("c1", "tool", "t", "granted", args=bad),
        CallFinished("c1", "ok", bad),
        ResultMessage(bad),
        END,
        spec=FUNCTION,
    )
    assert told.result is Result.SUCCEEDED
    assert (told.value, told.checkpoint, told.calls[0].args) == (None, None, None)
    assert len(told.log.damaged) == 4
    assert any("bad value" in note for note in told.log.damaged)


def test_artifacts_are_named_once_and_bounded() -> None:
    """The last thousand, each once."""
    many = events(*(Artifact(f"file {n % 1500}") for n in range(3000)))
    artifacts = report(many, END).artifacts
    assert len(artifacts) == 1000
    assert artifacts[-1] == "file 1499"


def test_the_facts_of_the_supervisor_are_in_the_report() -> None:
    """Bytes, layers, limits, processes, times, and what the log's reader knows."""
    spec = RunSpec(argv=("/bin/echo", "a b"), name="x", tags={"k": "v"}, time_s=2.5)
    folded = fold(
        CREATED,
        STARTED,
        Output("stdout", b"12345"),
        Output("stderr", b"678"),
        Exit(code=0, cpu_s=0.5),
        End(Processes(4, 0, 0), torn_bytes=7, dropped_bytes=9),
        spec=spec,
    )
    told = folded.report(log_bytes=1000, torn_bytes=3, damaged=["segment 2 is missing"])
    assert (told.name, told.tags, told.command) == ("x", {"k": "v"}, "/bin/echo 'a b'")
    assert (told.output_bytes, told.dropped_bytes, told.cpu_s) == (8, 9, 0.5)
    assert told.layers == ("pid namespace",)
    assert [(limit.name, limit.value, limit.origin) for limit in told.limits] == [
        ("time", 2.5, "spec"),
        ("output", 1 << 30, "default"),
    ]
    assert (told.log.bytes, told.log.torn_bytes) == (1000, 10)
    assert told.log.damaged == ("segment 2 is missing",)
    assert told.processes.seen == 4


# --- a fold is a fold -------------------------------------------------------

BODIES = st.sampled_from(
    [
        CREATED,
        STARTED,
        STOP,
        LIMIT,
        VALUE,
        ERROR,
        END,
        Exit(code=0),
        Exit(signal=9),
        Exit(),
        Lost("gone"),
        Illegal("bad"),
        RefusedRecord(Reason.SANDBOX, "no"),
        Output("stdout", b"x"),
        RungRecord(Rung.ASKED, 2),
        RungRecord(Rung.SIGKILL, 2),
        Answered(Rung.ASKED, "no"),
        grant("c1", "model", "m"),
        grant("c2"),
        CallFinished("c1", "cancelled"),
        CallFinished("c2"),
        events(Text("a"), Usage("m", "c1", 1, 1)),
        events(Message("b"), Checkpoint(pack_value(1))),
    ]
)


@settings(max_examples=300, deadline=None)
@given(bodies=st.lists(BODIES, max_size=25), is_function=st.booleans())
def test_any_log_has_a_report_and_replaying_changes_nothing(
    bodies: list[RecordBody], is_function: bool
) -> None:
    """Pure, repeatable, writable as JSON, and settled for good by the first that settles it."""
    spec = FUNCTION if is_function else PROGRAM
    once, twice = Fold("r-testtest", spec), Fold("r-testtest", spec)
    decided = None
    for record in records(bodies):
        once.apply(record)
        twice.apply(record)
        twice.apply(record)
        assert decided is None or once.decided is decided
        decided = once.decided
    for record in records(bodies):
        twice.apply(record)
    told = once.report()
    assert told == once.report() == twice.report()
    assert msgspec.json.decode(msgspec.json.encode(told), type=Report) == told
    assert (told.result is not None) == told.finished
    assert (told.process_exit_code >= 0) is True


def test_a_record_of_unknown_type_changes_nothing() -> None:
    """The reader counts it; the fold passes over it."""
    folded = fold(CREATED, STARTED)
    before = folded.report()
    folded.apply(Record(99, BEGAN, By.SUPERVISOR, None))
    assert folded.report() == before


def test_memory_does_not_grow_with_the_records() -> None:
    """A week of output is one counter."""
    import tracemalloc

    folded = fold(CREATED, STARTED)
    chatter: list[Callable[[int], RecordBody]] = [
        lambda _: Output("stdout", b"x" * 100),
        lambda n: events(Text("some text"), Usage("m", f"call {n}", 1, 1)),
        lambda n: grant(f"call {n}", "model", "m", {"n": n}),
        lambda n: CallFinished(f"call {n}", "ok", pack_value("result")),
    ]
    seq = 10

    def chat(count: int) -> int:
        nonlocal seq
        for _ in range(count):
            number = seq
            for make in chatter:
                folded.apply(Record(seq, BEGAN, By.SUPERVISOR, make(number)))
                seq += 1
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    full = chat(6000)
    grown = chat(6000) - full
    tracemalloc.stop()
    assert grown < 1 << 20, f"{grown:,} bytes more after as many records again"
    assert sys.getsizeof(folded.report().partial_text) < 4 * MAX_TEXT
