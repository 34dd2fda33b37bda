"""asyncio: subprocesses, servers and clients on the loopback and in files, signals, HTTP."""

import asyncio
import http.server
import os
import signal
import socket
import socketserver
import threading
import urllib.request


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()


async def subprocesses() -> None:
    shell = await asyncio.create_subprocess_shell(
        "tr a-z A-Z", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await shell.communicate(b"words\n")
    assert out == b"WORDS\n"
    many = [await asyncio.create_subprocess_exec("true") for _ in range(10)]
    assert [await process.wait() for process in many] == [0] * 10
    sleeper = await asyncio.create_subprocess_exec("sleep", "60")
    sleeper.terminate()
    assert await sleeper.wait() == -signal.SIGTERM


async def servers() -> None:
    server = await asyncio.start_server(echo, "localhost", 0)
    for listening in server.sockets:  # 127.0.0.1 and ::1
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
    server.close()
    local = await asyncio.start_unix_server(echo, "echo.sock")
    reader, writer = await asyncio.open_unix_connection("echo.sock")
    writer.write(b"hello\n")
    assert await reader.readline() == b"hello\n"
    writer.close()
    local.close()
    os.unlink("echo.sock")


async def signals() -> None:
    came = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, came.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(came.wait(), 30)


async def all_of_it() -> None:
    await subprocesses()
    await servers()
    await signals()
    assert await asyncio.to_thread(int, "7") == 7


def sockets() -> None:
    one, other = socket.socketpair()
    one.sendall(b"x")
    assert other.recv(1) == b"x"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        one.close()
        other.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"datagram", receiver.getsockname())
        assert receiver.recv(16) == b"datagram"


def web() -> None:
    handler = http.server.SimpleHTTPRequestHandler
    handler.log_message = lambda *_: None  # type: ignore[method-assign]
    with open("page.txt", "w", encoding="utf-8") as file:
        file.write("a page")
    with socketserver.TCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.server_address[1]}/page.txt", timeout=30
        ) as page:
            assert page.read() == b"a page"
        server.shutdown()


if __name__ == "__main__":
    asyncio.run(all_of_it())
    sockets()
    web()
    print("all of it works")
