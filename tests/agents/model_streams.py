"""An agent of model calls that stream, in the ways in which their usage is told, or is not.

``input`` names the function: see each.  All but ``whole`` stay open until they are stopped.
"""

import threading
from typing import Any

from agentctl_child import RunCancelled, run

PROMPT = "You are a researcher. " * 2000
REQUEST = {"messages": [{"role": "user", "content": PROMPT}]}


def main() -> Any:
    """Run the one that is wanted."""
    return globals()[run.input]()


def _streamed() -> None:
    for _ in range(100):
        run.emit_text("word " * 8)


def _wait() -> None:
    run.progress(1, 1, "streaming")
    threading.Event().wait()


def cut() -> None:
    """The usage is in the last chunk, which never comes."""
    with run.model_call("big-model", REQUEST):
        _streamed()
        _wait()


def whole() -> None:
    """The same, and the last chunk comes."""
    with run.model_call("big-model", REQUEST) as call:
        _streamed()
        run.usage(12_000, 87, model="big-model", call=call)


def left() -> None:
    """Asked to end, its client leaves the stream and the call as if all were well."""
    with run.model_call("big-model", REQUEST):
        _streamed()
        try:
            _wait()
        except RunCancelled:
            pass


def failed() -> None:
    """The line goes dead before the last chunk; the agent goes on."""
    try:
        with run.model_call("big-model", REQUEST):
            _streamed()
            raise OSError("reset by peer")
    except OSError:
        pass
    _wait()


def told_late() -> None:
    """Cut, and then told all the same, once by the call and once without."""
    calls = []
    for _ in range(2):
        try:
            with run.model_call("big-model", REQUEST) as call:
                calls.append(call)
                _streamed()
                raise RunCancelled
        except RunCancelled:
            pass
    run.usage(12_000, 87, model="big-model")
    run.usage(12_000, 87, model="big-model", call=calls[0])
    _wait()


def unnamed() -> None:
    """The running counts name no call, and add up."""
    with run.model_call("big-model", REQUEST):
        _streamed()
        run.usage(12_000, 0, model="big-model")
        run.usage(0, 87, model="big-model")
        _wait()


def parallel() -> None:
    """Three at once, each with a text of its own length."""
    with (
        run.model_call("a", "p" * 4000) as a,
        run.model_call("b", "p" * 400) as b,
        run.model_call("c") as c,
    ):
        for call, pieces in ((a, 1), (b, 10), (c, 100)):
            for _ in range(pieces):
                run.emit_text("word" * 10, call=call)
        _wait()
