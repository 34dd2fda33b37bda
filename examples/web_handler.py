"""A web service, in asyncio and nothing else, that starts agents for others and can stop them.

    python examples/web_handler.py web.sock &
    curl --unix-socket web.sock http://localhost/runs -d '{"question": "What is a warden?"}'
    curl --unix-socket web.sock http://localhost/runs/r-abcdefgh
    curl --unix-socket web.sock http://localhost/runs/r-abcdefgh:stop -d ''

Each run has a supervisor of its own (``agentctl run -d``), so runs survive a restart of this
service.  The client is synchronous and thread-safe; a thread keeps it off the event loop.  The
socket is a file that only its owner can open: a port would be open to every web page as well.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError, NoSuchRunError

AGENTCTL = Path(sys.executable).with_name("agentctl")  # of the same installation
AGENT = f"{Path(__file__).with_name('research_agent.py')}:main"
MOST_BYTES = 1 << 16

client = Client()


async def answer(method: str, path: str, body: bytes) -> tuple[int, Any]:
    """Status and JSON for one request."""
    match method, path.removeprefix("/runs").removeprefix("/"):
        case "POST", "":
            question = json.loads(body)["question"]
            return 201, {"id": await start(str(question))}
        case "GET", "":
            live = await asyncio.to_thread(client.runs)
            return 200, [{"id": report.id, "state": report.state} for report in live]
        case "POST", action if action.endswith(":stop"):
            ref = action.removesuffix(":stop")
            # As long as the agent's graces last; other requests are answered meanwhile.
            outcome = await asyncio.to_thread(client.stop, ref, reason="asked over HTTP")
            return 200, {
                "gone": outcome.gone,
                "already": outcome.already,
                "detail": outcome.report.detail,
            }
        case "GET", ref:
            report = await asyncio.to_thread(client.show, ref)
            return 200, {
                "state": report.state,
                "result": report.result,
                "text": report.partial_text,
                "value": report.value,
            }
    return 405, {"error": f"{method} is not for {path}"}


async def start(question: str) -> str:
    """Start the agent; the run's id.  What it is to do goes in as data, never as a command."""
    options = ("--time", "5m", "--input", "-", "-d", AGENT)
    process = await asyncio.create_subprocess_exec(
        *(AGENTCTL, "run", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(json.dumps(question).encode())
    if process.returncode:
        raise AgentctlError(err.decode().strip())
    return out.decode().strip()


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read one request, answer it, hang up."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _version = head.split("\r\n", 1)[0].split(" ")
        lengths = [
            line for line in head.lower().split("\r\n") if line.startswith("content-length:")
        ]
        length = int(lengths[0].partition(":")[2]) if lengths else 0
        body = await reader.readexactly(min(length, MOST_BYTES))
        status, reply = await answer(method, path, body)
    except NoSuchRunError as error:
        status, reply = 404, {"error": str(error)}
    except AgentctlError as error:
        status, reply = 500, {"error": str(error)}
    except (ValueError, KeyError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        status, reply = 400, {"error": "not a request that makes sense here"}
    data = json.dumps(reply).encode() + b"\n"
    writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(data)}\r\n".encode())
    writer.write(b"Content-Type: application/json\r\nConnection: close\r\n\r\n" + data)
    writer.close()


async def main(path: str) -> None:
    """Serve on the socket *path* until Ctrl-C."""
    mask = os.umask(0o177)
    server = await asyncio.start_unix_server(serve_one, path)
    os.umask(mask)
    print("listening on", path, flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: web_handler.py SOCKET")
    try:
        asyncio.run(main(sys.argv[1]))
    except KeyboardInterrupt:
        pass
