"""A polite agent for asyncio: calls side by side, and cleans up when its task is cancelled."""

import asyncio
from typing import Any

from agentctl_child import run


async def main(given: Any) -> dict[str, Any]:
    """Make *given* calls (default 3) at once; give their results."""

    async def one(number: int) -> int:
        async with run.model_call("square", {"number": number}) as call:
            await asyncio.sleep(0.01)
            call.result = number * number
        run.emit_text(f"{number * number} ", source="squarer")
        return number * number

    try:
        return {"squares": list(await asyncio.gather(*map(one, range(int(given or 3)))))}
    except asyncio.CancelledError:
        run.checkpoint({"cancelled": True})
        raise


async def sleep(given: Any) -> None:
    """Say so, then sleep for *given* seconds (default 60)."""
    run.emit_text("asleep")
    await asyncio.sleep(float(given or 60))


async def echo() -> list[Any]:
    """Answer every item of input; give them all."""
    heard = []
    async for item in run.inputs():
        run.emit_message(str(item), source="echo")
        heard.append(item)
    return heard
