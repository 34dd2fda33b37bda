"""Async generator functions: what they yield is reported; their result is None.

They run in the loop of their library, whose own cancellation reaches them where they
wait.  One that stands at a yield has `RunCancelled` raised there; what it yields in answer
is reported too, and then it is closed.
"""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

from agentctl_child.sdk.cancellation import Interruption, RunCancelled
from agentctl_child.sdk.mode import Mode
from agentctl_child.sdk.yielded import report


class AsyncGeneratorMode:
    """Calls an async generator function in *loop*, and runs what it gives to its end."""

    def __init__(self, interruption: Interruption, loop: Mode) -> None:
        self._interruption = interruption
        self._loop = loop
        self.interrupt = loop.interrupt
        self.loop_turns = loop.loop_turns
        self.close = loop.close

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """None, or what the generator raises."""
        return self._loop.call(self._exhaust, (function, arguments))

    async def _exhaust(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        generator = cast("AsyncGenerator[object, None]", function(*arguments))
        step: Callable[[], Awaitable[object]] = generator.__anext__
        while True:
            try:
                value = await step()
                step = generator.__anext__
                report(value, self._interruption)
            except StopAsyncIteration:
                return
            except BaseException as error:
                if getattr(generator, "ag_frame", None) is None:
                    raise  # it came out of the generator
                if isinstance(error, RunCancelled):
                    await self._end(generator, error)
                    raise
                # A mistake is an error where it was made: at the yield.
                step = functools.partial(generator.athrow, error)

    async def _end(self, generator: AsyncGenerator[object, None], stop: RunCancelled) -> None:
        """Raise *stop* in a generator that stands at a yield.  Called while that is handled."""
        try:
            report(await generator.athrow(stop), self._interruption)
        except (RunCancelled, StopAsyncIteration):
            pass
        finally:
            await generator.aclose()
