"""The mode for async generator functions: yielded values are reported; the result is None.

They run in the loop of their library. The library's own cancellation reaches them where they wait.
In a generator that is suspended at a yield, `RunCancelled` is raised at that yield. If it yields a
value in response, that value is reported too, and then the generator is closed.
"""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

from agentctl_child.sdk.cancellation import Interruption, RunCancelled
from agentctl_child.sdk.mode import Mode
from agentctl_child.sdk.yielded import report


class AsyncGeneratorMode:
    """Calls an async generator function in *loop*, and runs the generator to its end."""

    def __init__(self, interruption: Interruption, loop: Mode) -> None:
        self._interruption = interruption
        self._loop = loop
        self.interrupt = loop.interrupt
        self.loop_turns = loop.loop_turns
        self.close = loop.close

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Run the generator to its end; return None or raise the generator's exception."""
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
                    raise  # raised by the generator itself
                if isinstance(error, RunCancelled):
                    await self._end(generator, error)
                    raise
                # An invalid value is an error at the place of its yield.
                step = functools.partial(generator.athrow, error)

    async def _end(self, generator: AsyncGenerator[object, None], stop: RunCancelled) -> None:
        """Raise *stop* in a generator that is suspended at a yield, while *stop* is handled."""
        try:
            report(await generator.athrow(stop), self._interruption)
        except (RunCancelled, StopAsyncIteration):
            pass
        finally:
            await generator.aclose()
