"""A program that embeds a supervisor, for tests that kill it or measure it.

``python embedding.py`` reads one line of JSON, an `Order`, from standard
input, and says on the order's FIFO what it has come to: ``opening``, ``started RUN``,
``finished RUN``.  It ends when its runs have ended, or at once where a test ends it.

With ``forks`` it does the worst that an embedding program can do to a supervisor: it
forks with `multiprocessing` before and in the middle of a start.  The forks hold
copies of every descriptor, the agent's end of the channel among them, and live until
standard input ends.
"""

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Final

import msgspec
import trio

from agentctl_protocol.spec import RunSpec
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.run import Run

PROGRAM: Final = Path(__file__)


class Order(msgspec.Struct, frozen=True):
    """What to embed: these runs, all at once; ``fifo`` is where to say so.

    A run with an open standard input gets its end of file right after the start.
    """

    fifo: str
    specs: tuple[RunSpec, ...]
    forks: bool = False
    subreaper: bool = False


class _Program:
    def __init__(self, order: Order) -> None:
        self.order = order
        self._fifo = os.open(order.fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # multiprocessing gives a child another standard input.
        self._input = os.dup(0)

    def say(self, words: str) -> None:
        os.write(self._fifo, f"{words}\n".encode())

    async def main(self) -> None:
        self.say("opening")
        async with (
            Supervisor.open(subreaper=self.order.subreaper) as supervisor,
            trio.open_nursery() as nursery,
        ):
            for spec in self.order.specs:
                if self.order.forks:
                    self._fork()
                run = await supervisor.start(spec)
                if self.order.forks:
                    # The launch is still to come: the fork holds the agent's ends, too.
                    self._fork()
                self.say(f"started {run.id}")
                if run.stdin is not None:
                    await run.stdin.aclose()
                nursery.start_soon(self._see_end, run)

    async def _see_end(self, run: Run) -> None:
        await run.wait(durable=True)
        self.say(f"finished {run.id}")

    def _fork(self) -> None:
        multiprocessing.get_context("fork").Process(target=self._stay).start()

    def _stay(self) -> None:
        while os.read(self._input, 4096):
            pass


if __name__ == "__main__":
    trio.run(_Program(msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)).main)
    # An ordinary exit would join the forks.
    os._exit(0)
