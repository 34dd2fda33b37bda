"""A polite agent for trio: calls side by side, and cleans up when its scope is cancelled."""

from typing import Any

import trio

from agentctl_child import run


async def main(given: Any) -> dict[str, Any]:
    """Make *given* calls (default 3) at once; give their results."""
    last = int(given or 3)
    squares = [0] * last

    async def one(number: int) -> None:
        async with run.model_call("square", {"number": number}) as call:
            await trio.sleep(0.01)
            call.result = number * number
        run.emit_text(f"{number * number} ", source="squarer")
        squares[number] = number * number

    try:
        async with trio.open_nursery() as nursery:
            for number in range(last):
                nursery.start_soon(one, number)
    except trio.Cancelled:
        run.checkpoint({"cancelled": True})
        raise
    return {"squares": squares}


async def sleep(given: Any) -> None:
    """Say so, then sleep for *given* seconds (default 60)."""
    run.emit_text("asleep")
    await trio.sleep(float(given or 60))


async def echo() -> list[Any]:
    """Answer every item of input; give them all."""
    heard = []
    async for item in run.inputs():
        run.emit_message(str(item), source="echo")
        heard.append(item)
    return heard
