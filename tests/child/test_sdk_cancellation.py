"""A stop reaches plain code wherever it is, and never tears what the SDK is sending."""

import random
from pathlib import Path

import pytest

from agentctl_child.sdk.cancellation import CancelToken
from agentctl_protocol.messages import (
    Ack,
    Ask,
    Beat,
    CallFinished,
    Cancel,
    Checkpoint,
    ErrorMessage,
    Events,
    Input,
    InputEnd,
    LogLine,
    Ping,
    Ready,
    Verdict,
)
from agentctl_protocol.values import pack_value
from agentctl_testkit.sdk import (
    AGENTS,
    ForkedAgents,
    StartAgent,
    write_agent,
)


@pytest.mark.parametrize(
    "blocking",
    [
        "time.sleep(60)",
        "import socket; a, b = socket.socketpair(); a.recv(1)",
        "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "threading.Event().wait()",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "input()",
        "sys.stdin.buffer.read()",
        "import select; select.select([], [], [])",
        "import queue; queue.Queue().get()",
        "t = threading.Thread(target=time.sleep, args=(60,)); t.start(); t.join()",
        "run.cancel_token.wait(); time.sleep(60)",
        "list(run.inputs())",
        "\n    while True: pass",
        "sum(1 for _ in iter(int, 1))",
        "asyncio.run(asyncio.sleep(60))",
    ],
)
def test_stop_breaks_what_the_main_thread_waits_for(start: StartAgent, blocking: str) -> None:
    """RunCancelled ends blocking calls and loops of plain code at once."""
    agent = start(f"def main():\n    run.emit_text('here'); {blocking}")
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(ErrorMessage) == []


@pytest.mark.parametrize(
    "swallowing",
    [
        "os.register_at_fork(before=wait)\n    os.fork() or os._exit(0)",
        "class Late:\n        def __del__(self): wait()\n    Late()",
        "import weakref; Late = type('Late', (), {}); x = Late(); y = weakref.ref(x, wait); del x",
    ],
    ids=["fork", "del", "weakref"],
)
def test_stop_that_the_interpreter_drops_is_raised_again(
    start: StartAgent, swallowing: str
) -> None:
    """What is raised in its callbacks goes nowhere: the code behind them is interrupted."""
    agent = start(
        f"""
def wait(*_):
    run.emit_text("here")
    time.sleep(60)

def main():
    {swallowing}
    time.sleep(60)
"""
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert "Exception ignored" not in agent.stderr()


def test_stop_that_comes_with_the_start_is_honoured_before_the_first_line(
    start: StartAgent, tmp_path: Path
) -> None:
    """Neither the module nor the function is run when the stop was there first."""
    trace = tmp_path / "ran"
    agent = start(
        f"open({str(trace)!r}, 'w')\ndef main(): pass", Cancel(reason="user", deadline_s=5)
    )
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(Ready) == []
    assert not trace.exists()


def test_stop_during_the_import_keeps_the_function_from_being_called(
    start: StartAgent, tmp_path: Path
) -> None:
    """A module that imports slowly is interrupted, and its function never runs."""
    trace = tmp_path / "ran"
    agent = start(
        f"""
        run.emit_text("importing")
        time.sleep(60)
        def main(): open({str(trace)!r}, 'w')
        """
    )
    agent.hear_text("importing")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert not trace.exists()


def test_import_that_swallows_the_stop_does_not_get_its_function_called(
    start: StartAgent, tmp_path: Path
) -> None:
    """A module that catches everything has its stop remembered."""
    trace = tmp_path / "ran"
    agent = start(
        f"""
        run.emit_text("importing")
        try: time.sleep(60)
        except BaseException: pass
        def main(): open({str(trace)!r}, 'w')
        """
    )
    agent.hear_text("importing")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert not trace.exists()


def test_swallowed_stop_is_raised_again_by_every_later_call(start: StartAgent) -> None:
    """An agent that catches RunCancelled meets it at each call into the SDK."""
    agent = start(
        """
        def main():
            caught = 0
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled: caught += 1
            for call in (lambda: run.emit_text("x"), lambda: run.progress(1), run.flush,
                         lambda: next(run.inputs()), lambda: run.log("x")):
                try: call()
                except RunCancelled: caught += 1
            return caught
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == 6
    assert agent.texts() == ["here"]


@pytest.mark.parametrize(
    "handler",
    [
        "except RunCancelled: save(); raise",
        "except BaseException: save(); raise",
        "finally: save()",
    ],
)
def test_code_that_handles_the_stop_can_save_its_work(start: StartAgent, handler: str) -> None:
    """Inside except and finally the reporting calls go through, from nested calls too."""
    agent = start(
        f"""
        def save():
            try:
                raise KeyError("something else went wrong meanwhile")
            except KeyError:
                run.checkpoint({{"saved": 1}})
                run.emit_text("partial")
                run.usage(1, 2)
                run.artifact("out.txt")
                run.log("saved")
        def main():
            try: run.emit_text("here"); time.sleep(60)
            {handler}
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert len(agent.of(Checkpoint)) == 1
    assert agent.texts() == ["here", "partial"]


def test_value_returned_after_the_stop_is_sent(start: StartAgent) -> None:
    """An agent that answers a stop with a value has it kept."""
    agent = start(
        """
        def main():
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled as stop: return [str(stop), run.cancel_token.reason]
        """
    )
    agent.hear_text("here")
    agent.cancel("time", "the limit of 3 s is over")
    assert agent.finish() == 0
    assert agent.value() == ["the limit of 3 s is over", "time"]


def test_call_after_the_stop_was_delivered_is_asked_and_never_made(start: StartAgent) -> None:
    """An agent that goes on calling proves it to the supervisor, and gets nowhere."""
    agent = start(
        """
        def main():
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled:
                try:
                    with run.tool_call("in the handler"): return "made"
                except CallRefused as refused: why = refused.why
            try:
                with run.tool_call("behind it"): return "made"
            except RunCancelled: return why
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == "the run is being stopped"
    assert [ask.name for ask in agent.of(Ask)] == ["in the handler", "behind it"]


def test_first_call_that_meets_the_stop_is_no_proof_of_ignoring_it(start: StartAgent) -> None:
    """A thread that has not been told yet gets RunCancelled, and no ask is sent for it."""
    agent = start(
        """
        def main():
            told = []
            def work():
                run.cancel_token.wait()
                try:
                    with run.tool_call("never"): told.append("made")
                except RunCancelled: told.append("told")
            thread = threading.Thread(target=work)
            thread.start()
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled: pass
            thread.join()
            return told
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == ["told"]
    assert agent.of(Ask) == []


def test_stop_ends_an_ask_that_waits_for_its_verdict(start: StartAgent) -> None:
    """A pending ask raises RunCancelled; a grant that comes too late ends as cancelled."""
    agent = start(
        """
        def main():
            try:
                with run.tool_call("slow"): return "made"
            except RunCancelled:
                run.emit_text("handling")
                time.sleep(0.2)
                raise
        """
    )
    ask = agent.hear(Ask)
    agent.cancel()
    agent.say(Verdict(call=ask.call, verdict="granted"))
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.texts() == ["handling"]
    assert [(call.call, call.outcome) for call in agent.of(CallFinished)] == [("c1", "cancelled")]


def test_stop_inside_a_call_reports_it_as_cut_short(start: StartAgent) -> None:
    """A call that the stop interrupts is finished as cancelled."""
    agent = start(
        "def main():\n with run.tool_call('slow'): run.emit_text('in it'); time.sleep(60)"
    )
    agent.grant(agent.hear(Ask))
    agent.hear_text("in it")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert [call.outcome for call in agent.of(CallFinished)] == ["cancelled"]


def test_callbacks_run_before_the_main_thread_is_interrupted(start: StartAgent) -> None:
    """Callbacks are called once, in order, before RunCancelled; one that raises stops no other."""
    agent = start(
        """
        def main():
            seen = []
            run.cancel_token.add_callback(lambda: seen.append(1))
            forget = run.cancel_token.add_callback(lambda: seen.append("removed"))
            run.cancel_token.add_callback(lambda: 1 / 0)
            run.cancel_token.add_callback(lambda: seen.append(2))
            forget()
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled:
                run.cancel_token.add_callback(lambda: seen.append(3))
                return seen
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == [1, 2, 3]
    assert "ZeroDivisionError" in agent.of(LogLine)[0].text


def test_callback_that_blocks_does_not_keep_the_stop_away(start: StartAgent) -> None:
    """The main thread is interrupted though a callback never returns."""
    agent = start(
        """
        def main():
            run.cancel_token.add_callback(lambda: time.sleep(60))
            run.emit_text("here")
            time.sleep(60)
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled


def test_threads_that_watch_the_token_end_politely(agents: ForkedAgents) -> None:
    """CancelToken.wait in worker threads is woken by the stop."""
    with agents.start(f"{AGENTS / 'polite_threads.py'}:main") as agent:
        agent.hear_text("working")
        agent.cancel()
        assert agent.finish() == 0
        assert agent.was_cancelled
        assert len(agent.of(Checkpoint)) == 1


def test_second_cancel_and_late_messages_change_nothing(start: StartAgent) -> None:
    """A second cancel raises nothing in the handler of the first; acks and pings go on."""
    agent = start(
        """
        def main():
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled:
                run.emit_text("handling")
                time.sleep(0.3)
                run.emit_text("handled")
                raise
        """
    )
    agent.hear_text("here")
    agent.cancel()
    agent.hear_text("handling")
    agent.cancel()
    agent.say(Ack(seq=2), Ping())
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.texts() == ["here", "handling", "handled"]
    assert agent.of(Beat) == [Beat(thread=1)]


def test_stop_in_the_middle_of_a_flood_never_tears_a_frame(
    agents: ForkedAgents, tmp_path: Path
) -> None:
    """80 stops at random moments in an agent that does nothing but send: every frame is legal."""
    path = write_agent(
        tmp_path,
        """
        def main():
            try:
                for number in range(10**9):
                    run.emit_text("x" * (number % 3000))
                    if number % 7 == 0:
                        with run.tool_call("t", {"n": number}): pass
                    if number % 11 == 0:
                        run.flush()
            except RunCancelled:
                run.checkpoint({"saved": True})
                raise
        """,
    )
    chance = random.Random(2)
    for _ in range(80):
        with agents.start(f"{path}:main") as agent:
            agent.hear(Events)
            for _ in range(chance.randrange(40)):
                if isinstance(message := agent.next_message(), Ask):
                    agent.grant(message)
            agent.cancel()
            assert agent.finish(grant=True) == 0
            assert agent.was_cancelled
            assert len(agent.of(Checkpoint)) == 1


def test_stop_that_comes_as_the_agent_goes_to_sleep_is_not_lost(
    agents: ForkedAgents, tmp_path: Path
) -> None:
    """A signal just before the system call that it should break is sent again."""
    path = write_agent(tmp_path, "def main(): run.emit_text('x'); time.sleep(600)")
    for _ in range(60):
        with agents.start(f"{path}:main") as agent:
            agent.hear(Events)
            agent.cancel()
            assert agent.finish() == 0
            assert agent.was_cancelled


def test_alarm_that_raises_in_a_blocked_send_does_not_tear_a_frame(start: StartAgent) -> None:
    """A time-out made of SIGALRM ends a report that blocks; what follows is legal."""
    agent = start(
        """
        def main():
            import signal
            def alarm(signum, frame): raise TimeoutError
            signal.signal(signal.SIGALRM, alarm)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                while True: run.emit_text("x" * 60_000)
            except TimeoutError:
                print("timed out", flush=True)
            run.emit_text("after it")
        """
    )
    assert agent.process.stdout is not None
    assert agent.process.stdout.readline() == b"timed out\n"
    assert agent.finish() == 0
    assert agent.texts()[-1] == "after it"


def test_agent_that_takes_our_signal_is_still_told_at_its_calls(start: StartAgent) -> None:
    """An agent whose own handler replaced ours is not killed by the signal."""
    agent = start(
        """
        def main():
            import signal
            for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
                signal.signal(number, signal.SIG_DFL)
            run.emit_text("here")
            run.cancel_token.wait()
            run.emit_text("never")
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.texts() == ["here"]


@pytest.mark.parametrize("file", ["polite_sync.py", "polite_asyncio.py"])
def test_inputs_arrive_in_order_until_their_end(agents: ForkedAgents, file: str) -> None:
    """run.inputs() gives each item and ends when no more follow."""
    with agents.start(f"{AGENTS / file}:echo") as agent:
        agent.say(Input(data=pack_value({"n": 1})), Input(data=pack_value("two")))
        agent.hear(Events)
        agent.say(Input(data=pack_value(None)), InputEnd())
        assert agent.finish() == 0
        assert agent.value() == [{"n": 1}, "two", None]


def test_token_is_cancelled_once_and_only_gets_shorter() -> None:
    """The first reason stays; a later cancel can only shorten the time that is left."""
    token = CancelToken()
    assert not token.wait(0)
    assert token.seconds_left == float("inf")
    assert token.cancel("user", "enough", 5)
    assert not token.cancel("time", "other", 60)
    assert (token.reason, token.detail) == ("user", "enough")
    assert token.seconds_left <= 5
    token.cancel("time", "", 0)
    assert token.seconds_left == 0
    assert token.wait()
