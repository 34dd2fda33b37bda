"""A warm interpreter that forks agents, as the spawner does, without keepers and sandbox.

``python -I agentctl_testkit/forkserver.py FD [MODULE...]``: it imports the modules, then
forks.  FD is a SOCK_SEQPACKET socket.  Each packet is a JSON object, the agent's additional
environment, with six descriptors: a socket for its status, the two ends of its channel,
and its three standard streams.  On the status socket go the agent's pidfd, with its pid in
decimal, and its exit status in decimal when it has ended.
"""

import importlib
import json
import os
import select
import socket
import sys

import agentctl_child.sdk.asyncio_mode  # noqa: F401 - so that no agent spends its start on it
from agentctl_child.agent import main


def serve(orders: socket.socket) -> None:
    """Fork an agent for each packet, until the other end is closed."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([orders.fileno(), *running], [], [])
        for ended in running.keys() & ready:
            pid, status = running.pop(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(status, str(code).encode())
            os.close(status)
            os.close(ended)
        if orders.fileno() in ready:
            packet, descriptors, _, _ = socket.recv_fds(orders, 1 << 16, 6)
            if not descriptors:
                return
            pid = os.fork()
            if pid == 0:
                become_agent(packet, orders, descriptors)
            status = descriptors[0]
            pidfd = os.pidfd_open(pid)
            with socket.socket(fileno=os.dup(status)) as told:
                socket.send_fds(told, [str(pid).encode()], [pidfd])
            running[pidfd] = pid, status
            for descriptor in descriptors[1:]:
                os.close(descriptor)


def become_agent(packet: bytes, orders: socket.socket, descriptors: list[int]) -> None:
    """Never returns."""
    orders.close()
    os.setsid()
    os.environ.update(json.loads(packet))
    _, reads, writes, *streams = descriptors
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    first, last = sorted((reads, writes))
    os.closerange(3, first)
    os.closerange(first + 1, last)
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX") if last > 1000 else 1024)
    main((reads, writes))


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    serve(socket.socket(fileno=int(sys.argv[1])))
