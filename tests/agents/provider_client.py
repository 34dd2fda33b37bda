"""Streams from a model provider on 127.0.0.1, in each way in which an agent may do that.

``AGENTCTL_TEST_PROVIDER`` is the port.  As a program: ``provider_client.py``.
"""

import asyncio
import http.client
import os

from membership import Tree, arm, report


def connect() -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", int(os.environ["AGENTCTL_TEST_PROVIDER"]))


def read_for_ever(path: str) -> None:
    connection = connect()
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    report(f"streaming {path}")
    while answer.read(5):
        pass


def sync() -> None:
    """One call, blocked in ``recv`` until it is stopped."""
    from agentctl_child import run

    arm()
    with run.model_call("stream", {}) as call:
        read_for_ever(call.id)


async def on_asyncio() -> None:
    """One call, in the event loop."""
    from agentctl_child import run

    arm()
    async with run.model_call("stream", {}) as call:
        port = int(os.environ["AGENTCTL_TEST_PROVIDER"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET /{call.id} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            while await reader.read(5):
                pass
        finally:
            writer.close()


def insatiable() -> None:
    """Call after call, whatever happens: neither a cancel nor a refusal makes it stop asking."""
    import signal

    from agentctl_child import run

    arm()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    refused = 0
    while True:
        try:
            with run.model_call("stream", {}) as call:
                _one_answer(call.id)
        except BaseException as error:
            refused += 1
            if refused in (1, 10):
                report(f"refused {refused} {type(error).__name__}")


def _one_answer(path: str) -> None:
    connection = connect()
    try:
        connection.request("GET", f"/{path}")
        connection.getresponse().read()
    finally:
        connection.close()


if __name__ == "__main__":
    tree = Tree()
    tree.up("root")
    read_for_ever("program")
