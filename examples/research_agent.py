"""An agent that answers a question from the pages of ``docs/``, with a model and two tools.

    agentctl run --input '"How is a stop made sure of?"' examples/research_agent.py:main

Each call of the model and of a tool asks first, and is refused after a stop.  What the model
says is reported word by word, and what it costs as it grows.  A stop interrupts whatever is
going on; the agent then saves what it has, and goes.
"""

import contextlib
import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from agentctl_child import RunCancelled, run

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
MODEL: Final = "stub-1"
MAX_TURNS: Final = 8

Message = dict[str, Any]


def main(question: str = "How is a stop made sure of?") -> dict[str, Any]:
    """Answer *question*; also what a run of this file by hand does."""
    with model() as port:
        return research(question, port)


@contextlib.contextmanager
def model() -> Iterator[int]:
    """A stand-in for a hosted model, in a process of its own; its port."""
    command = [sys.executable, str(Path(__file__).with_name("model_stub.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        try:
            yield int(stub.stdout.readline())
        finally:
            stub.kill()


def research(question: str, port: int) -> dict[str, Any]:
    """Ask the model, use the tools that it wants, and so on until it wants none."""
    messages: list[Message] = [{"role": "user", "content": question}]
    try:
        for turn in range(MAX_TURNS):
            reply = ask_model(port, messages)
            messages.append(reply)
            if "tool_call" not in reply:
                return {"answer": reply["content"], "turns": turn + 1}
            messages.append(use_tool(**reply["tool_call"]))
            run.checkpoint(messages)
            run.progress(turn + 1, note=f"{reply['tool_call']['name']} is done")
    except RunCancelled:
        # The last words: until the grace is over, reports still go out.
        run.checkpoint(messages)
        run.log(f"stopped with {len(messages)} messages saved", "warning")
        raise
    raise RuntimeError(f"no answer after {MAX_TURNS} turns")


def ask_model(port: int, messages: list[Message]) -> Message:
    """The model's reply, reported while it is streamed."""
    reply: Message = {"role": "assistant", "content": ""}
    with run.model_call(MODEL, {"messages": len(messages)}) as call:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        try:
            body = json.dumps({"model": MODEL, "stream": True, "messages": messages})
            connection.request("POST", "/v1/chat/completions", body)
            for line in connection.getresponse():
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line.removeprefix(b"data: "))
                delta = chunk["choices"][0]["delta"]
                if "content" in delta:
                    reply["content"] += delta["content"]
                    run.emit_text(delta["content"], source="model")
                reply |= {key: delta[key] for key in delta if key == "tool_call"}
                # Totals of this call so far: a stop in mid-sentence leaves the last ones.
                run.usage(**chunk["usage"], model=MODEL, call=call)
        finally:
            connection.close()  # a stop also ends what the provider charges for
        call.result = reply
    return reply


def use_tool(name: str, args: dict[str, str]) -> Message:
    """What a tool gives, as a message to the model."""
    with run.tool_call(name, args) as call:
        call.result = TOOLS[name](**args)
    return {"role": "tool", "content": call.result}


def search(words: str) -> list[str]:
    """The pages with most of *words*, best first."""
    wanted = {word for word in words.lower().replace("?", "").split() if len(word) > 3}
    scores = {
        str(page.relative_to(DOCS)): sum(page.read_text().lower().count(word) for word in wanted)
        for page in DOCS.rglob("*.md")
    }
    return [page for page in sorted(scores, key=lambda p: (-scores[p], p)) if scores[page]]


def read(page: str) -> str:
    """The first paragraph of a page.  The name comes from the model, which may say anything."""
    if not (DOCS / page).resolve().is_relative_to(DOCS):
        raise PermissionError(f"not a page: {page}")
    _title, first, *_rest = (DOCS / page).read_text().split("\n\n", 2)
    return " ".join(first.split())


TOOLS: Final[dict[str, Callable[..., Any]]] = {"search": search, "read": read}


if __name__ == "__main__":
    print(main()["answer"])
