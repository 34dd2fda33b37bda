"""A language model that costs nothing and knows one trick, so that examples need no key.

Prints the port of 127.0.0.1 on which it listens, and answers ``POST /v1/chat/completions``
as hosted models do: by a stream of server-sent events, a word at a time, with the tokens used so
far.  Its trick: it has the pages searched, reads the best two, and sums up.
"""

import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

WORDS_PER_S: Final = float(os.environ.get("MODEL_WORDS_PER_S", "40"))


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for chunk in _chunks(body["messages"]):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # the client hung up, as one that is stopped does

    def log_message(self, *_arguments: object) -> None:
        """Say nothing on stderr."""


def _chunks(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    text, tool = _reply(messages)
    words = text.split(" ")
    for count, word in enumerate(words, 1):
        time.sleep(1 / WORDS_PER_S)
        yield {"choices": [{"delta": {"content": word + " "}}], "usage": _usage(messages, count)}
    if tool is not None:
        yield {"choices": [{"delta": {"tool_call": tool}}], "usage": _usage(messages, len(words))}


def _usage(messages: list[dict[str, Any]], completion: int) -> dict[str, int]:
    prompt = sum(len(str(message["content"]).split()) for message in messages)
    return {"prompt_tokens": prompt, "completion_tokens": completion}


def _reply(messages: list[dict[str, Any]]) -> tuple[str, dict[str, Any] | None]:
    """What the model says, and the tool that it wants to be used."""
    question = messages[0]["content"]
    found = [message["content"] for message in messages if message["role"] == "tool"]
    if not found:
        return "Let me see where this is written about.", {
            "name": "search",
            "args": {"words": question},
        }
    pages = found[0]
    if len(found) <= min(2, len(pages)):
        page = pages[len(found) - 1]
        return f"I read {page}.", {"name": "read", "args": {"page": page}}
    gist = " ".join(found[1:]) or "I found nothing."
    return f"This is what I found. {gist}", None


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
