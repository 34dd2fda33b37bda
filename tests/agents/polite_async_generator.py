"""A polite async generator, for asyncio: yields its text as it comes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agentctl_child import run


async def main(given: Any) -> AsyncIterator[str]:
    """Make *given* calls (default 3), and yield the result of each."""
    try:
        for number in range(int(given or 3)):
            async with run.model_call("square", {"number": number}) as call:
                await asyncio.sleep(0.01)
                call.result = number * number
            yield f"{number * number} "
    except asyncio.CancelledError:
        run.checkpoint({"cancelled": True})
        raise


async def sleep(given: Any) -> AsyncIterator[str]:
    """Say so, then sleep for *given* seconds (default 60)."""
    yield "asleep"
    await asyncio.sleep(float(given or 60))


async def echo() -> AsyncIterator[dict[str, Any]]:
    """Answer every item of input."""
    async for item in run.inputs():
        yield {"echo": item}
