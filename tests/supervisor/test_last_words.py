"""What an agent said right before its end, and was read after it."""

import sys
from pathlib import Path

import pytest
import trio

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Rung
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.conversation import Conversation
from agentctl_supervisor.store.run_directory import Home

SAYS_HELLO = """
import os, time
from agentctl_protocol.channel import agent_end
from agentctl_protocol.messages import Ask, Cancel, Hello, Ready

end = agent_end()
reads, writes = map(int, os.environ["AGENTCTL_CHANNEL_FD"].split(","))

def say(*messages):
    for message in messages:
        os.write(writes, end.send(message))

say(Hello(version=1), Ready())
print("up", flush=True)
"""
HEARS_CANCEL = """
while not any(isinstance(m, Cancel) for m, _ in end.receive(os.read(reads, 1 << 16))):
    pass
time.sleep(0.5)  # longer than a call and a cancel take to cross
"""
ASKS = """
say(Ask(call="c1", kind="tool", name="shell"))
"""


@pytest.mark.parametrize("stopped", [False, True], ids=["exits", "stopped"])
async def test_a_call_asked_for_before_the_end_and_read_after_it_is_none(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to make it: it is not granted, and no rung is taken for it."""
    greeted = trio.Event()

    async def read_hello(self: Conversation) -> None:
        if stopped:
            while not self.can_hear:
                await trio.sleep(0.01)
                await self.drain()
            greeted.set()
        await trio.sleep_forever()

    monkeypatch.setattr(Conversation, "run", read_hello)
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    source = SAYS_HELLO + (HEARS_CANCEL if stopped else "") + ASKS
    async with Supervisor.open(home) as supervisor:
        up = trio.Event()

        async def hear(_stream: str, _data: bytes) -> None:
            up.set()

        run = await supervisor.start(RunSpec(argv=(sys.executable, "-c", source)), on_output=hear)
        with trio.fail_after(20):
            await up.wait()
            if stopped:
                await greeted.wait()
            report = await (run.stop() if stopped else run.wait())
    assert report.calls == ()
    assert report.result is (Result.STOPPED if stopped else Result.SUCCEEDED)
    assert [step.step for step in report.ladder] == ([Rung.ASKED] if stopped else [])
