"""A program that embeds a supervisor: a bystander, somebody who takes what there is, a new run.

``python beside_program.py ORDER`` with a JSON object; prints one with what was seen.

``taker``: argv of a run that prints a line once it has taken what it can.  ``starve``: what this
process itself is to lack once its bystander runs: ``epoll`` (watches), ``threads`` (and forks),
``descriptors``, ``tasks`` (the pid namespace's table, which it fills).  ``pid_max``: for the pid
namespace that it is in.
"""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from agentctl_child.sandbox import bpf, prctl, seccomp, syscall_numbers
from agentctl_child.sandbox.bpf import Condition, Rule
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.supervisor import Supervisor

_EPOLL_CTL_ADD = 1
syscall_numbers.NUMBERS.update(epoll_ctl=(233, 21), vfork=(58, None))


@contextmanager
def _filtered(*rules: Rule) -> Iterator[None]:
    """From now on, for this thread alone, and for good."""
    prctl.forbid_new_privileges()
    seccomp.install(bpf.assemble(rules))
    yield


def _without_epoll() -> Any:
    rule = Rule("epoll_ctl", errno.ENOSPC, "", "", (Condition(1, (_EPOLL_CTL_ADD,)),))
    return _filtered(rule)


def _without_threads() -> Any:
    return _filtered(*(Rule(call, errno.EAGAIN, "") for call in ("clone", "clone3", "vfork")))


@contextmanager
def _without_descriptors() -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))
    taken: list[int] = []
    # What a stop needs stays: as if other runs had taken these.
    while not taken or taken[-1] < 200:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for fd in taken:
        os.close(fd)


@contextmanager
def _without_tasks() -> Iterator[None]:
    taken = []
    try:
        while True:
            pid = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
            taken.append(pid)
    except OSError as error:
        assert error.errno == errno.EAGAIN
    yield
    for pid in taken:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


_STARVED: dict[str, Callable[[], Any]] = {
    "epoll": _without_epoll,
    "threads": _without_threads,
    "descriptors": _without_descriptors,
    "tasks": _without_tasks,
}


async def _new_run(supervisor: Supervisor, spec: RunSpec) -> str:
    try:
        run = await supervisor.start(spec)
        report = await run.wait(durable=True)
    except AgentctlError as error:
        return f"refused: {error}: {error.hint}"
    return f"{report.result}: {report.detail}"


async def _stopped_by_a_client(run: Run) -> str:
    """By a fresh command, whose answer comes over the control socket."""
    stop = [f"{os.path.dirname(sys.executable)}/agentctl", "stop", "--grace", "0s", run.id]

    def execute() -> str:
        return subprocess.run(stop, capture_output=True, text=True, check=False).stdout

    with trio.fail_after(30):
        return await trio.to_thread.run_sync(execute)


async def _stopped_by_us(run: Run) -> str:
    with trio.fail_after(30):
        report = await run.stop(grace_s=0.0, term_grace_s=0.2)
        await run.wait(durable=True)
    return f"{report.result}, {report.processes.survivors} left"


async def main(order: dict[str, Any]) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    def spec(*argv: str) -> RunSpec:
        return RunSpec(argv=list(argv), cwd=order["workspace"], sandbox=Sandbox.STRICT)

    async with Supervisor.open() as supervisor:
        bystander = await supervisor.start(spec("/bin/sleep", "1000"))
        other = await supervisor.start(spec("/bin/sleep", "1000"))
        for run in (bystander, other):
            await run.wait_started()
        if order.get("taker"):
            has_taken = trio.Event()

            async def heard(_stream: str, data: bytes) -> None:
                if b"\n" in data:
                    has_taken.set()

            taker = await supervisor.start(spec(*order["taker"]), on_output=heard)
            with trio.fail_after(60):
                await has_taken.wait()
            seen["taken"] = taker.stdout.decode() + taker.stderr.decode()
            seen["outside"] = subprocess.run(
                [*order["taker"], "1"], capture_output=True, text=True, check=False
            ).stdout
        with _STARVED[order["starve"]]() if order.get("starve") else _nothing():
            seen["new"] = await _new_run(supervisor, spec("/bin/echo", "hi"))
            seen["bystander"] = str(bystander.report.state)
            seen["stopped"] = await _stopped_by_us(bystander)
            if order.get("starve") not in ("threads", "tasks"):
                seen["stopped by a client"] = await _stopped_by_a_client(other)
        if order.get("starve") not in ("threads", "epoll"):
            seen["afterwards"] = await _new_run(supervisor, spec("/bin/echo", "hi"))
    return seen


@contextmanager
def _nothing() -> Iterator[None]:
    yield


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "pid_max" in given:
        with open("/proc/sys/kernel/pid_max", "w") as file:
            file.write(str(given["pid_max"]))
    sys.stdout.write(json.dumps(trio.run(main, given)))
